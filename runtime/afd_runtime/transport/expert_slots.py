"""The expert worker's half of the slots: where dispatches land, and when a round is complete.

    FREE --landing--> FILLING --delivered--> DELIVERED --next (all lanes)--> TAKEN --release--> FREE

One slot for each (lane, microbatch). A lane's rounds of one microbatch only go up; a header that
does not is a leftover or a mistake and raises. Threads that receive write into the slot's buffer and
then say `delivered` under the lock, so rows are visible before the flag.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from afd_runtime.protocol.plan import MAX_MICROBATCHES
from afd_runtime.transport.errors import Mismatch, RoundTimeout, SlotInUse, TransportError
from afd_runtime.transport.round import Arrived, Dispatch, Round, WireFormat


@dataclass
class _Slot:
    buffers: Dispatch
    last: tuple[int, int] = (-1, -1)
    """(step, layer) of the newest round it was used for."""
    round: Round | None = None
    rows: int = 0


class ExpertSlots:
    """All dispatch slots of an expert worker in one epoch. Thread-safe."""

    def __init__(self, wire: WireFormat, epoch: int, lanes: Iterable[int], timeout_s: float) -> None:
        self._wire = wire
        self._epoch = epoch
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._failure: TransportError | None = None
        self._woken = False
        self._slots = {lane: [_Slot(Dispatch.empty(wire)) for _ in range(MAX_MICROBATCHES)] for lane in lanes}
        self._delivered: dict[Round, set[int]] = {}
        self._since_s: dict[Round, float] = {}
        """When a round's first dispatch was there."""

    def landing(self, lane: int, round: Round, rows: int) -> Dispatch:
        """The buffers for an arriving dispatch of `rows` rows; raises Mismatch or SlotInUse."""
        with self._changed:
            self._raise_failure()
            if round.epoch != self._epoch:
                raise Mismatch(
                    f"lane {lane}: dispatch of epoch {round.epoch}, this is epoch {self._epoch}", lane
                )
            if rows > self._wire.max_rows:
                raise Mismatch(
                    f"lane {lane}: {round} has {rows} rows, the buffers hold {self._wire.max_rows}", lane
                )
            slot = self._slots[lane][round.microbatch]
            if slot.round is not None:
                raise SlotInUse(f"lane {lane}: dispatch of {round} before the combine of {slot.round}", lane)
            if (round.step, round.layer) <= slot.last:
                raise Mismatch(
                    f"lane {lane}: dispatch of {round} after step {slot.last[0]} layer {slot.last[1]}", lane
                )
            slot.round, slot.rows, slot.last = round, rows, (round.step, round.layer)
            return slot.buffers.first(rows)

    def delivered(self, lane: int, round: Round) -> None:
        """The rows are all in the buffers."""
        with self._changed:
            self._delivered.setdefault(round, set()).add(lane)
            self._since_s.setdefault(round, time.monotonic())
            self._changed.notify_all()

    def next(self, timeout_s: float) -> Arrived | None:
        """The most urgent complete round, or None after `timeout_s` or a wake; raises RoundTimeout when
        a lane has let others wait too long."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._raise_failure()
                complete = [r for r, lanes in self._delivered.items() if len(lanes) == len(self._slots)]
                if complete:
                    return self._take(min(complete, key=lambda r: r.urgency))
                self._raise_overdue()
                left = deadline - time.monotonic()
                if self._woken or left <= 0:
                    self._woken = False
                    return None
                self._changed.wait(min(left, self._patience_s()))

    def release(self, round: Round) -> None:
        """The mirror image of `landing`, for all lanes: the round's rows are no longer needed."""
        with self._changed:
            for slots in self._slots.values():
                slot = slots[round.microbatch]
                if slot.round == round:
                    slot.round = None

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def fail(self, failure: TransportError) -> None:
        """End every wait, now and later, with `failure`; the first one stays."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _take(self, round: Round) -> Arrived:
        del self._delivered[round], self._since_s[round]
        slots = {lane: slots[round.microbatch] for lane, slots in sorted(self._slots.items())}
        return Arrived(round, {lane: slot.buffers.first(slot.rows) for lane, slot in slots.items()})

    def _patience_s(self) -> float:
        """Until the oldest incomplete round is overdue."""
        oldest_s = min(self._since_s.values(), default=time.monotonic())
        return max(0.0, oldest_s + self._timeout_s - time.monotonic())

    def _raise_overdue(self) -> None:
        for round, since_s in self._since_s.items():
            if time.monotonic() - since_s >= self._timeout_s:
                absent = sorted(set(self._slots) - self._delivered[round])
                raise RoundTimeout(
                    f"lane {absent[0]}: no dispatch of {round} within {self._timeout_s:g} s "
                    f"of the first lane's (missing: lanes {absent})",
                    absent[0],
                )

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.again()
