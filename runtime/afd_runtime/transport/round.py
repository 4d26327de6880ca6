"""What one exchange is about: the round's name, the format of its rows, the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from afd_runtime.protocol.plan import Phase


@dataclass(frozen=True)
class Round:
    """(epoch, phase, step, layer, microbatch): one dispatch and its combine."""

    epoch: int
    phase: Phase
    step: int
    layer: int
    microbatch: int

    def __str__(self) -> str:
        place = f"layer {self.layer} microbatch {self.microbatch}"
        return f"{self.phase} step {self.step} {place} (epoch {self.epoch})"

    @property
    def urgency(self) -> tuple[int, int, int, int]:
        """Sort key at an expert worker: decode before prefill, then the order lanes wait in."""
        return (0 if self.phase is Phase.DECODE else 1, self.step, self.layer, self.microbatch)


@dataclass(frozen=True, kw_only=True)
class WireFormat:
    """What both sides of a connection agree on before the first row. Buffers are sized by it once:
    `max_rows` is the worst case, every row of the largest microbatch routed to one worker."""

    hidden: int
    top_k: int
    max_rows: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Dispatch:
    """Rows for one expert worker: hidden [rows, hidden] in the wire's dtype, ids int32 [rows, k] with
    -1 for experts that live elsewhere, weights float32 [rows, k]. Zero rows are a normal dispatch."""

    hidden: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor

    @property
    def rows(self) -> int:
        return self.hidden.shape[0]

    def first(self, rows: int) -> Dispatch:
        """A view of the first `rows` rows."""
        return Dispatch(self.hidden[:rows], self.ids[:rows], self.weights[:rows])

    @staticmethod
    def empty(wire: WireFormat) -> Dispatch:
        """Buffers for the largest dispatch, not initialised."""
        return Dispatch(
            torch.empty(wire.max_rows, wire.hidden, dtype=wire.dtype),
            torch.empty(wire.max_rows, wire.top_k, dtype=torch.int32),
            torch.empty(wire.max_rows, wire.top_k, dtype=torch.float32),
        )


@dataclass(frozen=True)
class Pulled:
    """Combined rows [rows, hidden] in the order of the dispatch; a view into the slot, valid until
    the next push of the same microbatch to the same worker. `transfer_us`: first to last byte."""

    hidden: torch.Tensor
    transfer_us: float


@dataclass(frozen=True)
class Arrived:
    """A round that all lanes have delivered: lane index -> its rows (views, valid until `finish`)."""

    round: Round
    by_lane: dict[int, Dispatch]
