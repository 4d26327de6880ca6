"""What one lane holds, mirrored: the lane owns its pages, the coordinator counts along.

`reserve` and `release` are mirror images. Released pages count as free at once, because the very
next plan carries the release and a lane gives back before it runs. A release that was on an aborted
plan is sent again; lanes ignore one that they have done already.

Invariant: the free pages that a lane reports after a step are those expected when the step was
issued. If a lane reports fewer, the difference is never handed out (`missing_pages`).
"""

from __future__ import annotations

from afd_runtime.coordinator.requests import Request
from afd_runtime.protocol.messages import Held, LaneCapacity

Attempt = tuple[str, int]


class Lane:
    def __init__(self, index: int, incarnation: int, capacity: LaneCapacity) -> None:
        self.index = index
        self.incarnation = incarnation
        self.capacity = capacity
        self.running: list[Request] = []
        """In order of assignment."""
        self.missing_pages = 0
        self._to_free: dict[Attempt, None] = {}

    def pages(self, request: Request) -> int:
        return -(-request.reserve // self.capacity.page_tokens)

    @property
    def free_pages(self) -> int:
        taken = sum(self.pages(request) for request in self.running)
        return self.capacity.kv_pages - taken - self.missing_pages

    @property
    def used_ratio(self) -> float:
        return 1 - self.free_pages / self.capacity.kv_pages

    def fits(self, request: Request) -> bool:
        return len(self.running) < self.capacity.table_slots and self.pages(request) <= self.free_pages

    def reserve(self, request: Request) -> None:
        request.lane = self.index
        self.running.append(request)

    def release(self, request: Request) -> None:
        self.running.remove(request)
        if request.begun or request.computed:
            self._to_free[request.id, request.attempt] = None
        request.lane = None

    @property
    def has_frees(self) -> bool:
        return bool(self._to_free)

    def take_frees(self) -> list[Attempt]:
        frees, self._to_free = list(self._to_free), {}
        return frees

    def give_back_frees(self, frees: list[Attempt]) -> None:
        """The plan that carried them was aborted."""
        self._to_free = dict.fromkeys([*frees, *self._to_free])

    def expected_free_pages(self) -> int:
        """What the lane will report after the plan that is being issued now."""
        return self.capacity.kv_pages - sum(self.pages(request) for request in self.running if request.begun)

    def reconcile(self, held: list[Held]) -> list[Request]:
        """The lane registered and said what it holds. What it holds and is not known is freed;
        what it should hold and does not is returned, released: to be replayed."""
        lengths = {(entry.request_id, entry.attempt): entry.length for entry in held}
        lost = [
            request
            for request in self.running
            if request.computed and lengths.get((request.id, request.attempt), -1) < request.computed
        ]
        for request in lost:
            self.release(request)
        known = {(request.id, request.attempt) for request in self.running}
        self.give_back_frees([attempt for attempt in lengths if attempt not in known])
        return lost
