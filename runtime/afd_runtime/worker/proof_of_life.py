"""Whether the main thread still moves: without that no heartbeat goes out and /health fails.

A process whose main thread hangs in a computation or a deadlock is as lost as a dead one, though its
other threads would answer for ever.
"""

from __future__ import annotations

import time


class ProofOfLife:
    """`beat` is called by the main thread whenever it gets on; `alive` by all others."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._beaten_s: float | None = None

    def beat(self) -> None:
        self._beaten_s = time.monotonic()

    @property
    def alive(self) -> bool:
        """True as well before the first beat: loading a checkpoint takes as long as it takes."""
        return self._beaten_s is None or time.monotonic() - self._beaten_s < self.limit_s
