"""Steps that are out: issued, and not yet committed.

    issue(t)  issue(t+1)  ...           at most `lead` of them
        results of every lane of t  ->  commit(t)      always in order of issue
        abort                       ->  none of them happened

A result is checked against what was asked before anything of it is believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from afd_runtime.coordinator.lanes import Attempt
from afd_runtime.coordinator.requests import Request
from afd_runtime.coordinator.scheduler import Microbatch
from afd_runtime.protocol.messages import LaneResult, Sampled, StepTimes
from afd_runtime.protocol.plan import Phase, SequenceWork


@dataclass(frozen=True)
class LaneShare:
    """What one lane was asked in one step."""

    microbatches: list[Microbatch]
    frees: list[Attempt]
    expected_free_pages: int

    def works(self) -> list[tuple[Request, SequenceWork]]:
        return [assignment for batch in self.microbatches for assignment in batch]

    def contradiction(self, sampled: list[Sampled]) -> str | None:
        """How a lane's tokens differ from those that were asked for; None if they do not."""
        asked = {
            (work.request_id, work.attempt): work.start + work.count
            for _, work in self.works()
            if work.sample
        }
        told = {(token.request_id, token.attempt): token.position for token in sampled}
        if len(told) != len(sampled):
            return "a request has two tokens"
        if asked != told:
            differ = dict(asked.items() ^ told.items())
            return f"tokens asked for and told differ for {sorted(name for name, _ in differ)}"
        return None


@dataclass
class Step:
    """One step that is out."""

    number: int
    phase: Phase
    issued_s: float
    microbatches: int
    bucket: int
    shares: dict[int, LaneShare]
    results: dict[int, LaneResult] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.results.keys() == self.shares.keys()

    @property
    def has_work(self) -> bool:
        return any(share.works() for share in self.shares.values())


def unbelievable(times: StepTimes) -> str | None:
    """What no clock can say; None for ordinary times."""
    for name in ("compute_us", "transfer_us", "dispatch_us", "waited_us", "step_us", "rounds", "rows"):
        value = getattr(times, name)
        if not (math.isfinite(value) and value >= 0):
            return f"{name} is {value}"
    return None
