"""The experts' arithmetic: SwiGLU feed-forward over rows that are grouped by expert.

rows with routing     r0 -> e2, e0     r1 -> e2     r2 -> e1, elsewhere
sorted by expert      e0: r0   e1: r2   e2: r0 r1       one matrix product per group
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class ExpertOrder:
    """(row, expert) pairs sorted by expert, within an expert by row."""

    rows: torch.Tensor
    """[pairs]: the row of each pair"""
    picks: torch.Tensor
    """[pairs]: the pair's place in the flattened ids, for its weight"""
    counts: list[int]
    """pairs of each expert; zero is normal"""


def order_by_expert(ids: torch.Tensor, experts: int) -> ExpertOrder:
    """ids [rows, k] in 0..experts-1, or -1 for none. The sort is stable, so sums over experts are
    always added up in the same order."""
    flat = ids.reshape(-1).long()
    picks = torch.nonzero(flat >= 0).squeeze(1)
    picks = picks[torch.argsort(flat[picks], stable=True)]
    counts = torch.bincount(flat[picks], minlength=experts).tolist()
    return ExpertOrder(picks // ids.shape[1], picks, counts)


def swiglu_ffn(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """x [rows, hidden], gate_up [2 * inner, hidden] (gate first), down [hidden, inner] -> [rows, hidden]."""
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


def grouped_ffn(
    x: torch.Tensor, counts: list[int], gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """x [pairs, hidden] sorted by expert, counts of each -> [pairs, hidden].

    gate_up [experts, 2 * inner, hidden], down [experts, hidden, inner]. Experts without rows are skipped."""
    out = torch.empty_like(x)
    first = 0
    for expert, count in enumerate(counts):
        if count:
            out[first : first + count] = swiglu_ffn(x[first : first + count], gate_up[expert], down[expert])
            first += count
    return out
