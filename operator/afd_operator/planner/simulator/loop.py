"""The clock: callbacks in order of time; equal times run in the order they were scheduled."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Loop:
    """Runs scheduled callbacks. `now` is in the unit of the caller; `events` counts callbacks run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, time: float, callback: Callable[[], None]) -> None:
        """Run `callback` at `time`; raises ValueError for a time that has passed."""
        if time < self.now:
            raise ValueError(f"event at {time} scheduled at {self.now}")
        self._sequence += 1
        heapq.heappush(self._heap, (time, self._sequence, callback))

    def after(self, delay: float, callback: Callable[[], None]) -> None:
        self.at(self.now + delay, callback)

    def run(self, until: float | None = None) -> None:
        """Run until nothing is scheduled, or up to and including `until`."""
        heap = self._heap
        while heap and (until is None or heap[0][0] <= until):
            self.now, _, callback = heapq.heappop(heap)
            self.events += 1
            callback()
