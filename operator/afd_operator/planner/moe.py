"""Work of the routed experts: tiles, not tokens.

A grouped GEMM works on tiles of M_t rows of one expert. An expert that gets a single row still costs a
tile: its weights are read and its pipeline filled. So the footprint of a layer is

    x_moe = sum over experts with m_e > 0 of ceil(m_e / M_t)           (ExpertPlex, Eq. 3)

on one rank. A profile's rows are turned into (x_moe, rows per tile) and fitted with the common form
t = a + b x + g x s: `b` is a tile's weights, `g` a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from afd_operator.planner.fit import Array, Values
from afd_operator.planner.model import ModelSpec

TILE_ROWS = 128
"""M_t of DeepGEMM's contiguous layout, and the larger of its two masked ones."""


MOST_TILES = 64
"""Tiles of one expert beyond which x_moe is simply rows / M_t + 1/2."""


def footprint(tokens_of_expert: Iterable[int], tile_rows: int = TILE_ROWS) -> int:
    """x_moe of one rank, exactly, from the rows each of its experts received."""
    return sum(-(-m // tile_rows) for m in tokens_of_expert if m > 0)


def balanced_footprint(
    tokens: Values, *, experts: int, top_k: int, ranks: Values, tile_rows: int = TILE_ROWS
) -> tuple[Array, Array]:
    """(x_moe, rows per tile) of one of `ranks` ranks if `tokens` tokens spread evenly over the experts."""
    rows = np.maximum(np.asarray(tokens, dtype=float) * top_k / ranks, 1e-9)
    active = np.minimum(experts / np.asarray(ranks, dtype=float), np.maximum(rows, 1.0))
    tiles = active * np.ceil(np.round(rows / active / tile_rows, 9))
    tiles = np.maximum(tiles, active)
    return tiles, rows / tiles


def random_footprint(
    tokens: Values, *, experts: int, top_k: int, ranks: Values, tile_rows: int = TILE_ROWS
) -> tuple[Array, Array]:
    """(mean x_moe, rows per tile) of a rank if every token picks its experts at random; vectorised.

    `expected_footprint` with the binomial tail replaced by the logistic curve that approximates the
    normal one (|error| < 0.01), so that the footprint rises smoothly where whole experts cross a tile.
    """
    mean = np.maximum(np.asarray(tokens, dtype=float), 1e-9) * top_k / experts
    spread = np.sqrt(mean * (1.0 - top_k / experts) + 1e-12)
    per_expert = (
        1.0 - np.exp(np.asarray(tokens, dtype=float) * math.log1p(-top_k / experts))
        if top_k < experts
        else np.ones_like(mean)
    )
    deepest = min(int(np.max(mean) / tile_rows) + 3, MOST_TILES)
    for j in range(1, deepest + 1):
        per_expert = per_expert + 1.0 / (
            1.0 + np.exp(np.clip(1.702 * (j * tile_rows + 0.5 - mean) / spread, -60, 60))
        )
    beyond = np.maximum(mean / tile_rows + 0.5, 1.0)
    per_expert = np.where(mean > (MOST_TILES - 3) * tile_rows, beyond, per_expert)
    tiles = per_expert * experts / ranks
    return tiles, mean * experts / ranks / tiles


def expected_footprint(
    tokens: int, *, experts: int, top_k: int, ranks: int, tile_rows: int = TILE_ROWS
) -> float:
    """Mean x_moe of a rank when every token picks its experts at random.

    The rows of an expert are binomial(tokens, k/E); E[ceil(m/M_t)] = sum_j P(m > j M_t).
    """
    p = top_k / experts
    local = experts / ranks
    if p >= 1.0:
        return local * math.ceil(tokens / tile_rows)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tokens + 1)))])
    counts = np.arange(tokens + 1)
    log_choose = log_factorial[tokens] - log_factorial - log_factorial[::-1]
    pmf = np.exp(log_choose + counts * math.log(p) + (tokens - counts) * math.log1p(-p))
    return local * float((pmf * np.ceil(counts / tile_rows)).sum())


def active_experts(tokens: float, *, experts: int, top_k: int, ranks: int) -> float:
    """Experts of one rank that get at least one of `tokens` tokens, on average."""
    return float(experts / ranks * (1.0 - (1.0 - top_k / experts) ** tokens))


def copies_per_token(*, experts: int, top_k: int, ranks: int) -> float:
    """Ranks that a token travels to, on average: k experts drawn without replacement over `ranks`.

    Hypergeometric: a rank with E/ranks experts is missed with probability C(E - E/ranks, k) / C(E, k).
    """
    local = experts / ranks
    missed = 1.0
    for i in range(top_k):
        missed *= max(0.0, (experts - local - i) / (experts - i))
    return ranks * (1.0 - missed)


def weight_floor_us(model: ModelSpec, *, tokens: float, ranks: int, hbm_bytes_per_s: float) -> float:
    """Time to read the active experts' weights once: no kernel is faster for one layer and microbatch."""
    active = active_experts(tokens, experts=model.experts, top_k=model.top_k, ranks=ranks)
    return active * model.expert_bytes_each / hbm_bytes_per_s * 1e6
