"""How much a lane can hold, fixed once at start from a memory budget."""

from __future__ import annotations

from dataclasses import dataclass

from afd_runtime.models.shape import ModelShape


class LimitsError(ValueError):
    """The memory budget and the context length do not go together; the message has the numbers."""


@dataclass(frozen=True, kw_only=True)
class LaneLimits:
    """Raises LimitsError unless one request of the whole context fits."""

    kv_pages: int
    page_tokens: int
    table_slots: int
    """Most requests resident at once."""
    max_rows: int
    """Most rows of one microbatch."""
    context_length: int

    def __post_init__(self) -> None:
        for name in ("kv_pages", "page_tokens", "table_slots", "max_rows", "context_length"):
            if getattr(self, name) < 1:
                raise LimitsError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.kv_pages < self.pages_for(self.context_length):
            raise LimitsError(
                f"{self.kv_pages} KV pages hold {self.kv_pages * self.page_tokens} tokens, fewer than the "
                f"context length of {self.context_length}: give more KV memory or a shorter context"
            )

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)


def size_lane(
    shape: ModelShape,
    *,
    context_length: int,
    kv_bytes: int,
    element_bytes: int,
    page_tokens: int,
    table_slots: int,
    max_rows: int,
) -> LaneLimits:
    """As many pages as `kv_bytes` of memory hold, but no more than a full table could ever use;
    raises LimitsError."""
    if context_length > shape.max_position:
        raise LimitsError(
            f"context length {context_length}, the checkpoint was made for {shape.max_position} positions"
        )
    useful = table_slots * -(-context_length // page_tokens)
    affordable = kv_bytes // (shape.kv_bytes_per_token(element_bytes) * page_tokens)
    return LaneLimits(
        kv_pages=min(useful, affordable),
        page_tokens=page_tokens,
        table_slots=table_slots,
        max_rows=max_rows,
        context_length=context_length,
    )
