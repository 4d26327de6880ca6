"""The lane's half of the slots: where partial sums land.

    FREE --open (before the push)--> AWAITED --filled (combine has landed)--> LANDED --take--> FREE

One slot for each (expert worker, microbatch). The thread that receives writes into the slot's buffer
and then says `filled` under the lock; the lane's thread waits in `take`. So rows are visible before
the flag.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import torch

from afd_runtime.protocol.plan import MAX_MICROBATCHES
from afd_runtime.transport.errors import Mismatch, RoundTimeout, SlotInUse, TransportError
from afd_runtime.transport.round import Pulled, Round, WireFormat


@dataclass
class _Slot:
    buffer: torch.Tensor
    round: Round | None = None
    rows: int = 0
    landed: bool = False
    transfer_us: float = 0.0


class LaneSlots:
    """All combine slots of a lane. Thread-safe."""

    def __init__(self, wire: WireFormat, workers: int, timeout_s: float) -> None:
        self._wire = wire
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._failure: TransportError | None = None
        self._slots = [
            [
                _Slot(torch.empty(wire.max_rows, wire.hidden, dtype=wire.dtype))
                for _ in range(MAX_MICROBATCHES)
            ]
            for _ in range(workers)
        ]

    def open(self, worker: int, round: Round, rows: int) -> None:
        """Before a push of `rows` rows; raises SlotInUse, Mismatch, or why the endpoint failed."""
        with self._changed:
            self._raise_failure()
            slot = self._slots[worker][round.microbatch]
            if slot.round is not None:
                raise SlotInUse(
                    f"expert worker {worker}: push of {round} before the combine of {slot.round} was pulled"
                )
            if rows > self._wire.max_rows:
                raise Mismatch(
                    f"expert worker {worker}: {round} has {rows} rows, the buffers hold {self._wire.max_rows}"
                )
            slot.round, slot.rows, slot.landed = round, rows, False

    def landing(self, worker: int, round: Round, rows: int) -> torch.Tensor:
        """The buffer [rows, hidden] for an arriving combine; raises Mismatch unless it is awaited."""
        with self._changed:
            slot = self._slots[worker][round.microbatch]
            if slot.round != round or slot.landed:
                raise Mismatch(
                    f"expert worker {worker}: combine of {round} came, awaited was {slot.round}", worker
                )
            if slot.rows != rows:
                raise Mismatch(
                    f"expert worker {worker}: combine of {round} has {rows} rows, "
                    f"dispatched were {slot.rows}",
                    worker,
                )
            return slot.buffer[:rows]

    def filled(self, worker: int, round: Round, transfer_us: float) -> None:
        """The rows are all in the buffer."""
        with self._changed:
            slot = self._slots[worker][round.microbatch]
            slot.landed, slot.transfer_us = True, transfer_us
            self._changed.notify_all()

    def take(self, worker: int, round: Round) -> Pulled:
        """Wait for the combine of `round` and free its slot; raises TransportError."""
        deadline = time.monotonic() + self._timeout_s
        with self._changed:
            slot = self._slots[worker][round.microbatch]
            if slot.round != round:
                raise Mismatch(f"expert worker {worker}: pull of {round}, pushed was {slot.round}")
            while not slot.landed:
                self._raise_failure()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RoundTimeout(
                        f"expert worker {worker}: no combine of {round} within {self._timeout_s:g} s", worker
                    )
                self._changed.wait(left)
            slot.round = None
            return Pulled(slot.buffer[: slot.rows], slot.transfer_us)

    def fail(self, failure: TransportError) -> None:
        """End every wait, now and later, with `failure`; the first one stays."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.again()
