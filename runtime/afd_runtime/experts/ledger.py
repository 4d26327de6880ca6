"""Which steps an expert worker is in, how far, and what they took.

A step is complete when its MoE layers x microbatches rounds are served. Rounds may come before the
coordinator's ExpertStep (the two take different ways), so both orders end in the same record.
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_runtime.protocol.messages import StepTimes
from afd_runtime.protocol.plan import ExpertStep


@dataclass
class _Record:
    announced: ExpertStep | None = None
    rounds: int = 0
    rows: int = 0
    compute_s: float = 0.0
    waited_s: float = 0.0
    began_s: float = 0.0
    ended_s: float = 0.0


class StepLedger:
    """Open steps of one epoch. Times are of the caller's clock, in seconds."""

    def __init__(self, moe_layers: int) -> None:
        self._moe_layers = moe_layers
        self._records: dict[int, _Record] = {}

    def announce(self, step: ExpertStep) -> None:
        """The coordinator has issued `step`."""
        self._records.setdefault(step.step, _Record()).announced = step

    def served(self, step: int, *, rows: int, waited_s: float, began_s: float, ended_s: float) -> None:
        """A round of `step` was worked on from `began_s` to `ended_s`, after `waited_s` of waiting."""
        record = self._records.setdefault(step, _Record())
        # Waiting before a step's first round is the time between steps, not waiting in one.
        record.waited_s += waited_s if record.rounds else 0.0
        record.began_s = record.began_s or began_s
        record.ended_s = ended_s
        record.compute_s += ended_s - began_s
        record.rounds += 1
        record.rows += rows

    def complete(self) -> list[tuple[ExpertStep, StepTimes]]:
        """Steps that are announced and fully served, oldest first; they leave the ledger."""
        done: list[tuple[ExpertStep, StepTimes]] = []
        for number in sorted(self._records):
            record = self._records[number]
            step = record.announced
            if step is not None and record.rounds >= self._moe_layers * step.microbatches:
                done.append((step, _times(record)))
                del self._records[number]
        return done


def _times(record: _Record) -> StepTimes:
    return StepTimes(
        compute_us=record.compute_s * 1e6,
        waited_us=record.waited_s * 1e6,
        step_us=(record.ended_s - record.began_s) * 1e6,
        rounds=record.rounds,
        rows=record.rows,
    )
