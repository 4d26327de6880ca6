"""Attention over keys and values that live in pages.

A *slot* is the place of one token: page * page_tokens + offset. The kernel sees slots only, so pages
may have any size. The last slot of a cache is the *guard*: it is zero for ever, and every index that
points past a sequence's end points there. So whatever lies in pages not yet written (NaN as well)
can never reach a result: a masked weight of zero times NaN would be NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class LayerCache:
    """One layer's keys and values, each [slots + 1, kv_heads, head_dim]; the last slot is the guard."""

    keys: torch.Tensor
    values: torch.Tensor

    def write(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put rows [rows, kv_heads, head_dim] into their slots. Writing again changes nothing."""
        self.keys[slots] = keys.to(self.keys.dtype)
        self.values[slots] = values.to(self.values.dtype)


@dataclass(frozen=True)
class PagedBatch:
    """Rows of several sequences, one sequence after the other.

    Sequence s has `counts[s]` new rows at the end of its `lengths[s]` tokens. `read_slots`
    [sequences, longest] lists the slots of all its tokens, guard slots after its end."""

    counts: list[int]
    lengths: list[int]
    write_slots: torch.Tensor
    read_slots: torch.Tensor


def paged_attention(q: torch.Tensor, cache: LayerCache, batch: PagedBatch) -> torch.Tensor:
    """q [rows, heads, head_dim] -> [rows, heads * head_dim]: each row attends to its own sequence's
    tokens up to itself. Scale 1 / sqrt(head_dim); heads share key-value heads in groups."""
    if all(count == 1 for count in batch.counts):
        return _one_row_each(q, cache, batch)
    parts = zip(torch.split(q, batch.counts), batch.lengths, batch.read_slots, strict=True)
    return torch.cat([_one_sequence(rows, cache, slots[:length]) for rows, length, slots in parts])


def _one_row_each(q: torch.Tensor, cache: LayerCache, batch: PagedBatch) -> torch.Tensor:
    """Decode: one product over all sequences, the shorter ones padded with the guard and masked."""
    keys = cache.keys[batch.read_slots].transpose(1, 2).to(q.dtype)
    values = cache.values[batch.read_slots].transpose(1, 2).to(q.dtype)
    lengths = torch.tensor(batch.lengths).unsqueeze(1)
    mask = torch.arange(batch.read_slots.shape[1]) < lengths
    out = F.scaled_dot_product_attention(
        q.unsqueeze(2), keys, values, attn_mask=mask[:, None, None, :], enable_gqa=True
    )
    return out.flatten(1)


def _one_sequence(q: torch.Tensor, cache: LayerCache, slots: torch.Tensor) -> torch.Tensor:
    """Prefill: `q` are the last rows of a sequence whose tokens lie in `slots`."""
    count, length = q.shape[0], slots.shape[0]
    keys = cache.keys[slots].transpose(0, 1).to(q.dtype)
    values = cache.values[slots].transpose(0, 1).to(q.dtype)
    mask = torch.ones(count, length, dtype=torch.bool).tril(length - count)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        keys.unsqueeze(0),
        values.unsqueeze(0),
        attn_mask=mask,
        enable_gqa=True,
    )
    return out.squeeze(0).transpose(0, 1).flatten(1)
