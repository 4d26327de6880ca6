"""T_a, T_c and waiting of one step, on the lane's own clock."""

from __future__ import annotations

import time

from afd_runtime.protocol.messages import StepTimes


class StepClock:
    """Splits a step's wall time: what is neither a push nor a pull is attention-side compute."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._pushing_s = 0.0
        self._waiting_s = 0.0
        self._landing_us = 0.0
        self._rounds = 0
        self._rows = 0

    def pushed(self, seconds: float, rows: int) -> None:
        """One round's dispatch to all expert workers took `seconds`."""
        self._pushing_s += seconds
        self._rounds += 1
        self._rows += rows

    def pulled(self, seconds: float, landing_us: float) -> None:
        """The lane stood still for `seconds` until a combine was there, of which its bytes took
        `landing_us` to arrive (they may have arrived before the lane asked)."""
        self._waiting_s += seconds
        self._landing_us += landing_us

    def times(self) -> StepTimes:
        whole_s = time.perf_counter() - self._began
        return StepTimes(
            compute_us=(whole_s - self._pushing_s - self._waiting_s) * 1e6,
            transfer_us=self._pushing_s * 1e6 + self._landing_us,
            dispatch_us=self._pushing_s * 1e6,
            waited_us=self._waiting_s * 1e6,
            step_us=whole_s * 1e6,
            rounds=self._rounds,
            rows=self._rows,
        )
