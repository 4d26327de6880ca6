"""A queue in front of `servers` equal servers, first come first served: an expert rank, a link, a lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from afd_operator.planner.simulator.loop import Loop


class Station:
    """Serves jobs; keeps waiting times and busy time for utilisation. `room` bounds the queue (None = no bound)."""

    def __init__(self, loop: Loop, servers: int = 1, room: int | None = None) -> None:
        self.loop, self.servers, self.room = loop, servers, room
        self.busy = 0
        self.busy_time = 0.0
        self.refused = 0
        self.waits: list[float] = []
        self._queue: deque[tuple[float, float, Callable[[], None]]] = deque()

    def submit(self, service: float, done: Callable[[], None]) -> bool:
        """Queue a job of `service` time; `done` runs at its end. False if the queue is full (the job is refused)."""
        if self.busy < self.servers:
            self._start(self.loop.now, service, done)
        elif self.room is not None and len(self._queue) >= self.room:
            self.refused += 1
            return False
        else:
            self._queue.append((self.loop.now, service, done))
        return True

    def _start(self, arrived: float, service: float, done: Callable[[], None]) -> None:
        self.busy += 1
        self.busy_time += service
        self.waits.append(self.loop.now - arrived)
        self.loop.after(service, lambda: self._finish(done))

    def _finish(self, done: Callable[[], None]) -> None:
        self.busy -= 1
        done()
        if self._queue and self.busy < self.servers:
            self._start(*self._queue.popleft())
