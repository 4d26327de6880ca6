"""The boundary of a lane: which rows an expert worker needs, and the sum of what comes back."""

from __future__ import annotations

import torch


def rows_for(ids: torch.Tensor, owned: range) -> tuple[torch.Tensor, torch.Tensor]:
    """ids [rows, k] -> the rows with an expert in `owned` [picked], and their ids with -1 for the
    experts that live elsewhere [picked, k]. A row travels once to a worker, however many of the
    worker's experts it goes to."""
    here = (ids >= owned.start) & (ids < owned.stop)
    rows = torch.nonzero(here.any(dim=1)).squeeze(1)
    return rows, torch.where(here[rows], ids[rows], -1)


def add_partial(total: torch.Tensor, rows: torch.Tensor, partial: torch.Tensor) -> None:
    """Add a worker's partial sums [picked, hidden] to rows [picked] of `total` [rows, hidden], in place."""
    total.index_add_(0, rows, partial.to(total.dtype))
