"""What the next step runs: continuous batching over lanes, one phase a step.

    prefill   requests in order of assignment, each in pieces, until the lane's token budget is full
    decode    one token of every request that can go on, those that waited longest first
    flush     no request at all, only pages to give back: the last step before rest

A step never mixes phases (its graph and its expert tiles differ). When both phases have work the
steps alternate, so neither starves the other: a prompt delays each running answer by at most one
prefill step per token. Rows are spread over the microbatches so that all have about the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afd_runtime.coordinator.lanes import Lane
from afd_runtime.coordinator.requests import Request
from afd_runtime.protocol.plan import Phase, SequenceWork

PREFILL_TOKENS = 2048
"""Most prompt tokens of one lane in one step: what a decode step may have to wait for."""

Assignment = tuple[Request, SequenceWork]
Microbatch = list[Assignment]


@dataclass(frozen=True)
class Draft:
    """A step before it has a number. `lanes[index]` are that lane's microbatches."""

    phase: Phase
    lanes: dict[int, list[Microbatch]]

    @property
    def microbatches(self) -> int:
        return max(map(len, self.lanes.values()))

    @property
    def bucket(self) -> int:
        """At least 1, so that a step without work has buffers of the ordinary kind."""
        sizes = (sum(work.count for _, work in batch) for batches in self.lanes.values() for batch in batches)
        return max(1, *sizes)


class Spread:
    """Fills the microbatches of one lane, the emptiest first. Lives for one decision."""

    def __init__(self, microbatches: int, rows: int) -> None:
        self._batches: list[Microbatch] = [[] for _ in range(microbatches)]
        self._room = [rows] * microbatches

    def try_add(self, request: Request) -> bool:
        """False when no microbatch has room."""
        emptiest = max(range(len(self._room)), key=lambda number: self._room[number])
        if not self._room[emptiest]:
            return False
        work = request.work(self._room[emptiest])
        self._batches[emptiest].append((request, work))
        self._room[emptiest] -= work.count
        return True

    def batches(self) -> list[Microbatch]:
        """Those with work, first ones filled first."""
        return [batch for batch in self._batches if batch]


def draft(lanes: Sequence[Lane], *, last: Phase, microbatches: int, steps_out: int) -> Draft | None:
    """The next step, or None when results must come first. `last` is the phase of the step before,
    `steps_out` how many are out; a flush waits until none is."""
    for phase in (_other(last), last):
        works = {lane.index: _fill(lane, phase, microbatches) for lane in lanes}
        most = max((len(batches) for batches in works.values()), default=0)
        if most:
            return Draft(phase, {index: _padded(batches, most) for index, batches in works.items()})
    if not steps_out and any(lane.has_frees for lane in lanes):
        return Draft(Phase.DECODE, {lane.index: [[]] for lane in lanes})
    return None


def _fill(lane: Lane, phase: Phase, microbatches: int) -> list[Microbatch]:
    rows = lane.capacity.max_rows
    ready: Iterable[Request] = [request for request in lane.running if request.phase() is phase]
    if phase is Phase.DECODE:
        ready = sorted(ready, key=lambda request: request.last_step)
    else:
        rows = min(rows, max(1, PREFILL_TOKENS // microbatches))
    spread = Spread(microbatches, rows)
    for request in ready:
        if not spread.try_add(request):
            break
    return spread.batches()


def _padded(batches: list[Microbatch], count: int) -> list[Microbatch]:
    """All lanes have the same number of microbatches; what a lane lacks is empty."""
    return [*batches, *([] for _ in range(count - len(batches)))]


def _other(phase: Phase) -> Phase:
    return Phase.PREFILL if phase is Phase.DECODE else Phase.DECODE
