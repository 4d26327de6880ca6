"""How sure the comparison is: which measured parts both systems share, and which only one has.

A speedup is a ratio of two predicted steps. Attention, dense and small-kernel errors act on both sides
and largely cancel; the error of the all-to-all and of the fused expert kernel acts on one side only.
Each part is moved by its own standard deviation, the speedup recomputed at the same layout and batches,
and the changes added in quadrature (parts are fitted to separate tables, so independent).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from afd_operator.planner.step import step_time


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Microseconds of one layer: attention side (per microbatch), expert side, colocated (whole batch)."""

    attention: float
    gemms: float
    small: float
    experts: float
    transfer: float
    coloc_attention: float
    coloc_gemms: float
    coloc_small: float
    coloc_experts: float
    coloc_exchange: float


@dataclass(frozen=True, kw_only=True)
class Sigmas:
    """Relative standard deviations; `small` is that of the small kernels, `fused` of eta."""

    attention: float
    gemms: float
    small: float
    experts: float
    exchange: float
    fused: float
    transfer: float = 0.5


SHARED = {
    "attention": ("attention", "coloc_attention"),
    "gemms": ("gemms", "coloc_gemms"),
    "small": ("small", "coloc_small"),
    "experts": ("experts", "coloc_experts"),
    "exchange": ("coloc_exchange",),
    "fused": ("experts",),
    "transfer": ("transfer",),
}
"""Source of error -> the parts it moves together."""


def latency_ratio(parts: Parts, *, microbatches: int, layers: int) -> float:
    """T_v / T_a of these parts."""
    t_a = parts.attention + parts.gemms + parts.small
    unit = float(step_time(t_a, parts.experts, parts.transfer, microbatches=microbatches, layers=layers))
    colocated = (
        parts.coloc_attention
        + parts.coloc_gemms
        + parts.coloc_small
        + parts.coloc_experts
        + parts.coloc_exchange
    )
    return layers * colocated / unit


def contributions(parts: Parts, sigmas: Sigmas, *, microbatches: int, layers: int) -> dict[str, float]:
    """Source of error -> standard deviation it causes in log(speedup), largest first."""
    base = latency_ratio(parts, microbatches=microbatches, layers=layers)
    out = {}
    for source, moved in SHARED.items():
        sigma = getattr(sigmas, source)
        both = []
        for factor in (1 + sigma, 1 / (1 + sigma)):
            changed = replace(parts, **{name: getattr(parts, name) * factor for name in moved})
            both.append(
                abs(math.log(latency_ratio(changed, microbatches=microbatches, layers=layers) / base))
            )
        out[source] = sum(both) / 2
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def total(parts: dict[str, float]) -> float:
    """Independent contributions in quadrature."""
    return math.sqrt(sum(v * v for v in parts.values()))


assert {f.name for f in fields(Sigmas)} == set(SHARED), "every error moves some part"
