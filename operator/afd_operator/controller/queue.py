"""The work queue between events and reconciles: keys, not events, each worked on by one worker at a time.

    add ──► waiting (until due) ──► processing ──► done
              ▲   ▲                     │
              │   └── add again ◄───────┘      a key added while it is processed waits for `done`
              └──── retry, with back-off

Semantics are those of client-go's workqueue (util/workqueue: queue.go, delaying_queue.go,
rate_limiting_queue.go) in one structure:

- *waiting* is client-go's dirty set, with a time from which each key is due. Adding a waiting key again
  can only bring it forward, so a burst of events costs one reconcile, and a debounce cannot starve.
- *processing* keys are with a worker. They may be waiting too; they are not handed out before `done`.
- due = waiting, time reached, not processing: client-go's queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

DEBOUNCE_S = 0.2
"""From the first event of a burst to its reconcile. Own writes echo within a few milliseconds; with this
pause the echoes of one reconcile cost one more, not one each."""

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 60.0


class Schedule(Generic[Key]):
    """Which key is next at a given time. Holds no clock and never waits."""

    def __init__(self) -> None:
        self._waiting: dict[Key, float] = {}
        self._processing: set[Key] = set()
        # (due, tie-break, key). An entry counts only while `_waiting[key]` is its due time; a key
        # brought forward or handed out leaves a dead entry behind.
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()

    def add(self, key: Key, due: float) -> None:
        """Hand `key` out at `due` or sooner."""
        if due < self._waiting.get(key, float("inf")):
            self._waiting[key] = due
            self._push(key, due)

    def take(self, now: float) -> Key | None:
        """The key that has been due longest; None if no key is due."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            # A key in process keeps its place in `_waiting`; `done` gives it its heap entry back.
            if self._waiting.get(key) == due and key not in self._processing:
                del self._waiting[key]
                self._processing.add(key)
                return key
        return None

    def done(self, key: Key) -> None:
        """The mirror image of `take`."""
        self._processing.remove(key)
        if key in self._waiting:
            self._push(key, self._waiting[key])

    def next_due(self) -> float | None:
        """When to `take` again, at the earliest; None if nothing waits for a time."""
        return self._heap[0][0] if self._heap else None

    def depth(self, now: float) -> int:
        """Keys that are due, whether or not a worker has them still."""
        return sum(due <= now for due in self._waiting.values())

    def _push(self, key: Key, due: float) -> None:
        heapq.heappush(self._heap, (due, next(self._order), key))


def backoff_s(failures: int, jitter: float) -> float:
    """Pause after so many failures: doubles from 1 s to 60 s; `jitter` in [0, 1) takes up to half off."""
    full: float = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(failures, 16))
    return max(BACKOFF_FIRST_S, full * (1 - jitter / 2))


class WorkQueue(Generic[Key]):
    """`Schedule` on the event loop's clock. Not for threads: every call is made on the loop."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._schedule: Schedule[Key] = Schedule()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()
        self._jitter = jitter

    def add(self, key: Key) -> None:
        """Something happened to `key`: reconcile it after the debounce."""
        self.add_after(key, DEBOUNCE_S)

    def add_after(self, key: Key, seconds: float) -> None:
        self._schedule.add(key, self._now() + seconds)
        self._changed.set()

    def retry(self, key: Key) -> float:
        """The reconcile of `key` failed: again after a pause that grows; returns the pause in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = backoff_s(failures, self._jitter())
        self.add_after(key, pause)
        return pause

    def succeeded(self, key: Key) -> None:
        """The mirror image of `retry`: the next failure starts with the shortest pause."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """Wait for a key that is due. The caller must call `done` with it, whatever happens."""
        while True:
            # Cleared before looking: an `add` after the look sets it again, so no wake-up is lost.
            self._changed.clear()
            key = self._schedule.take(self._now())
            if key is not None:
                # There may be more: another waiting worker must look too.
                self._changed.set()
                return key
            due = self._schedule.next_due()
            timeout = None if due is None else max(0, due - self._now())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout)

    def done(self, key: Key) -> None:
        self._schedule.done(key)
        self._changed.set()

    def depth(self) -> int:
        """Keys that wait for a reconcile now, for the metric."""
        return self._schedule.depth(self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
