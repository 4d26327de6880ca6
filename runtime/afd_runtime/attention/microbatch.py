"""One microbatch of a step as tensors: which rows, where their KV goes, what they attend to."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from afd_runtime.attention.table import Resident
from afd_runtime.kernels.paged_attention import PagedBatch
from afd_runtime.models.stages import AttentionStage
from afd_runtime.protocol.plan import SequenceWork


class Microbatch:
    """Rows of a lane that go through the layers together; `hidden` [rows, hidden] is where they are.

    An empty microbatch has zero rows and takes part in every round like any other."""

    def __init__(
        self,
        number: int,
        parts: Sequence[tuple[SequenceWork, Resident]],
        stage: AttentionStage,
        guard_slot: int,
    ) -> None:
        self.number = number
        self.parts = parts
        self.rows = sum(work.count for work, _ in parts)
        tokens = [token for work, resident in parts for token in _tokens(work, resident)]
        positions = [position for work, _ in parts for position in range(work.start, work.start + work.count)]
        self.hidden = stage.embed(torch.tensor(tokens, dtype=torch.int64))
        self.rotation = stage.rotation(torch.tensor(positions, dtype=torch.int64))
        self.batch = _paged(parts, guard_slot)

    def last_rows(self) -> torch.Tensor:
        """The row of each sequence's newest token, for the sequences that sample."""
        ends = torch.tensor([work.count for work, _ in self.parts], dtype=torch.int64).cumsum(0) - 1
        return ends[torch.tensor([work.sample for work, _ in self.parts], dtype=torch.bool)]


def _tokens(work: SequenceWork, resident: Resident) -> list[int]:
    return work.tokens if work.tokens is not None else [resident.tokens[work.start]]


def _paged(parts: Sequence[tuple[SequenceWork, Resident]], guard_slot: int) -> PagedBatch:
    lengths = [work.start + work.count for work, _ in parts]
    read = torch.full((len(parts), max(lengths, default=0)), guard_slot, dtype=torch.int64)
    for row, length, (_, resident) in zip(read, lengths, parts, strict=True):
        row[:length] = resident.slots[:length]
    write = [resident.slots[work.start : work.start + work.count] for work, resident in parts]
    return PagedBatch(
        counts=[work.count for work, _ in parts],
        lengths=lengths,
        write_slots=torch.cat(write) if write else torch.empty(0, dtype=torch.int64),
        read_slots=read,
    )
