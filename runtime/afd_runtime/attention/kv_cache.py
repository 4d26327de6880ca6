"""The memory behind the pages: keys and values of all layers, allocated once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from afd_runtime.attention.limits import LaneLimits
from afd_runtime.kernels.paged_attention import LayerCache
from afd_runtime.models.shape import ModelShape


class KvCache:
    """`layer(n)` is what the attention kernel sees. Memory is not touched before it is written, so
    the operating system commits it page by page."""

    def __init__(self, shape: ModelShape, limits: LaneLimits, dtype: torch.dtype) -> None:
        self._page_tokens = limits.page_tokens
        slots = limits.kv_pages * limits.page_tokens
        self.guard_slot = slots
        """One slot past the last page: zero for ever (see `kernels.paged_attention`)."""
        self._data = torch.empty(shape.layers, 2, slots + 1, shape.kv_heads, shape.head_dim, dtype=dtype)
        self._data[:, :, slots].zero_()

    def layer(self, number: int) -> LayerCache:
        return LayerCache(self._data[number, 0], self._data[number, 1])

    def slots_of(self, pages: Sequence[int]) -> torch.Tensor:
        """The slots of a request's positions 0, 1, 2 ...: [len(pages) * page_tokens]."""
        first = torch.tensor(pages, dtype=torch.int64).unsqueeze(1) * self._page_tokens
        return (first + torch.arange(self._page_tokens)).flatten()
