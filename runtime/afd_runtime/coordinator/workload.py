"""All requests of the unit and the steps that move them on.

    waiting --assign--> running on a lane --steps--> committed tokens --finish--> gone
       ^                     |
       +------ restart ------+      its lane left, or an abort undid its first step

Each request is in exactly one of `waiting` and some lane's `running`, and in `requests`.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from afd_runtime.coordinator import admission, scheduler
from afd_runtime.coordinator.lanes import Lane
from afd_runtime.coordinator.requests import Request
from afd_runtime.coordinator.steps import LaneShare, Step, unbelievable
from afd_runtime.protocol.messages import Held, LaneCapacity, LaneResult
from afd_runtime.protocol.plan import Phase

MAX_STRIKES = 8
"""A killed worker costs one or two; only a request that breaks what runs it collects as many."""


@dataclass(frozen=True)
class Committed:
    """One answer token that will never change. `first` is its index in the answer."""

    request: Request
    first: int
    token: int
    finish_reason: str | None


class Workload:
    def __init__(self, *, microbatches: int, lead: int) -> None:
        self.microbatches = microbatches
        self.lead = lead
        self.lanes: dict[int, Lane] = {}
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        """By arrival."""
        self.pending: deque[Step] = deque()
        self.committed_step = 0
        self._issued_step = 0
        self._own_steps = False
        self._last_phase = Phase.DECODE

    # --- requests

    def add(self, request: Request) -> None:
        self.requests[request.id] = request
        insort(self.waiting, request, key=lambda waiting: waiting.arrival)

    def remove(self, request: Request) -> None:
        """The mirror image of `add`, wherever it got to: finished or cancelled."""
        request.done = True
        del self.requests[request.id]
        if request.lane is None:
            self.waiting.remove(request)
        else:
            self.lanes[request.lane].release(request)

    def _restart(self, request: Request) -> None:
        request.restart()
        insort(self.waiting, request, key=lambda waiting: waiting.arrival)

    def assign(self) -> None:
        """Place waiting requests, first come first served: one that fits nowhere yet is not
        overtaken, else a large one would wait for ever."""
        lanes = list(self.lanes.values())
        while self.waiting and (lane := admission.choose_lane(self.waiting[0], lanes)):
            lane.reserve(self.waiting.pop(0))

    # --- lanes; only while no step is out

    def lane_joined(self, index: int, incarnation: int, capacity: LaneCapacity, held: list[Held]) -> int:
        """Returns how many requests have to be replayed."""
        replays = 0
        lane = self.lanes.get(index)
        if lane is not None and lane.incarnation != incarnation:
            replays = self.lane_left(index)
            lane = None
        if lane is None:
            lane = self.lanes[index] = Lane(index, incarnation, capacity)
        lost = lane.reconcile(held)
        for request in lost:
            self._restart(request)
        return replays + len(lost)

    def lane_left(self, index: int) -> int:
        """The mirror image of `lane_joined`. Returns how many requests have to be replayed."""
        orphans = self.lanes.pop(index).running
        replays = sum(1 for request in orphans if request.computed)
        for request in orphans:
            self._restart(request)
        return replays

    # --- steps

    def seen_step(self, number: int) -> None:
        """A worker has been told of step `number`, by this coordinator or one before it. Of that one
        nothing can be taken back any more: what it did counts as committed."""
        if not self._own_steps:
            self.committed_step = max(self.committed_step, number)
        self._issued_step = max(self._issued_step, number)

    def next_step(self, now_s: float) -> Step | None:
        """Draft the next step and count it as issued; None when `lead` steps are out already or
        there is nothing to run."""
        if len(self.pending) >= self.lead:
            return None
        lanes = list(self.lanes.values())
        draft = scheduler.draft(
            lanes, last=self._last_phase, microbatches=self.microbatches, steps_out=len(self.pending)
        )
        if draft is None:
            return None
        self._issued_step += 1
        self._own_steps = True
        self._last_phase = draft.phase
        shares = {}
        for lane in lanes:
            for request, work in (entry for batch in draft.lanes[lane.index] for entry in batch):
                request.took(work, self._issued_step)
            shares[lane.index] = LaneShare(
                draft.lanes[lane.index], lane.take_frees(), lane.expected_free_pages()
            )
        step = Step(
            number=self._issued_step,
            phase=draft.phase,
            issued_s=now_s,
            microbatches=draft.microbatches,
            bucket=draft.bucket,
            shares=shares,
        )
        self.pending.append(step)
        return step

    def condemned(self) -> list[Request]:
        """Give a strike to every request of the steps that are out, because they ended in a fault or
        a loss. Those whose last strike it was are returned: one of them may be the cause, and a unit
        must not fail for ever with it. Call it before `abort`."""
        struck = {
            request.id: request
            for step in self.pending
            for share in step.shares.values()
            for request, _ in share.works()
            if not request.done
        }
        for request in struck.values():
            request.strikes += 1
        return [request for request in struck.values() if request.strikes >= MAX_STRIKES]

    def abort(self) -> None:
        """The mirror image of `next_step`, for all steps that are out."""
        while self.pending:
            step = self.pending.pop()
            for index, share in step.shares.items():
                self.lanes[index].give_back_frees(share.frees)
        for lane in self.lanes.values():
            for request in list(lane.running):
                if request.begun and not request.computed:
                    lane.release(request)
                    self._restart(request)
                else:
                    request.roll_back()

    def result(self, index: int, result: LaneResult) -> str | None:
        """Take down what lane `index` did. Returns how it contradicts the plan, if it does."""
        step = next((step for step in self.pending if step.number == result.step), None)
        if step is None or index not in step.shares:
            return f"step {result.step} is not out"
        if index in step.results:
            return f"a second result of step {result.step}"
        wrong = step.shares[index].contradiction(result.sampled) or unbelievable(result.times)
        if wrong is None:
            step.results[index] = result
        return wrong

    def commit(self) -> Iterator[tuple[Step, list[Committed]]]:
        """Commit the oldest steps as far as every lane's result is in."""
        while self.pending and self.pending[0].complete:
            step = self.pending.popleft()
            self.committed_step = step.number
            committed: list[Committed] = []
            for index, share in step.shares.items():
                lane, result = self.lanes[index], step.results[index]
                lane.missing_pages = max(0, share.expected_free_pages - result.free_pages)
                committed += self._commit_share(share, result)
            yield step, committed

    def _commit_share(self, share: LaneShare, result: LaneResult) -> Iterator[Committed]:
        tokens = {(token.request_id, token.attempt): token.token for token in result.sampled}
        for request, work in share.works():
            if request.done:
                continue
            request.computed = work.start + work.count
            request.strikes = 0
            if not work.sample:
                continue
            request.tokens.append(tokens[work.request_id, work.attempt])
            reason = request.finish_reason()
            if reason:
                self.remove(request)
            yield Committed(request, request.answered - 1, request.tokens[-1], reason)
