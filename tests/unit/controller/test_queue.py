"""The work queue: a burst is one reconcile, no key is with two workers, nothing added is lost."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from afd_operator.controller.queue import BACKOFF_FIRST_S, BACKOFF_LAST_S, Schedule, WorkQueue, backoff_s


def test_keys_come_in_the_order_in_which_they_are_due() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("late", 2.0)
    schedule.add("soon", 1.0)
    assert schedule.take(0.5) is None
    assert [schedule.take(2.0), schedule.take(2.0), schedule.take(2.0)] == ["soon", "late", None]


def test_a_burst_is_one_reconcile_and_does_not_postpone_it() -> None:
    schedule: Schedule[str] = Schedule()
    for due in (1.0, 1.1, 1.2):
        schedule.add("a", due)
    assert schedule.take(1.0) == "a"
    schedule.done("a")
    assert schedule.take(9.0) is None


def test_adding_sooner_brings_a_key_forward() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 300.0)
    schedule.add("a", 1.0)
    assert schedule.next_due() == 1.0
    assert schedule.take(1.0) == "a"


def test_a_key_added_while_processed_waits_for_done() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a", 0.0)
    assert schedule.take(0.0) == "a"
    schedule.add("a", 1.0)
    assert schedule.take(5.0) is None
    schedule.done("a")
    assert schedule.take(5.0) == "a"


def test_depth_counts_what_is_due_only() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("now", 0.0)
    schedule.add("resync", 300.0)
    assert schedule.depth(1.0) == 1


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_back_off_stays_between_its_bounds_and_grows(failures: int, jitter: float) -> None:
    assert BACKOFF_FIRST_S <= backoff_s(failures, jitter) <= BACKOFF_LAST_S
    assert backoff_s(failures, 0) <= backoff_s(failures + 1, 0)


class AgainstTheModel(RuleBasedStateMachine):
    """Any order of calls: the model is a dict of due times and a set of keys that workers have."""

    keys = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[str] = Schedule()
        self.waiting: dict[str, float] = {}
        self.processing: set[str] = set()
        self.now = 0.0

    @rule(key=keys, delay=st.integers(0, 5))
    def add(self, key: str, delay: int) -> None:
        self.schedule.add(key, self.now + delay)
        self.waiting[key] = min(self.waiting.get(key, float("inf")), self.now + delay)

    @rule(seconds=st.integers(0, 3))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        due = {k: t for k, t in self.waiting.items() if t <= self.now and k not in self.processing}
        key = self.schedule.take(self.now)
        if key is None:
            assert not due
        else:
            assert due[key] == min(due.values())
            del self.waiting[key]
            self.processing.add(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.schedule.done(key)
        self.processing.remove(key)

    @invariant()
    def a_sleeper_wakes_in_time(self) -> None:
        free = [t for k, t in self.waiting.items() if k not in self.processing]
        wake = self.schedule.next_due()
        assert not free or (wake is not None and wake <= min(free))


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = settings(max_examples=100, stateful_step_count=40)


async def test_every_waiting_worker_gets_its_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    for key in ("a", "b", "c", "a"):
        queue.add(key)
    assert sorted(await asyncio.wait_for(asyncio.gather(*workers), 10)) == ["a", "b", "c"]


async def test_an_earlier_key_wakes_a_worker_that_sleeps_for_a_later_one() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("resync", 3600)
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("event")
    assert await asyncio.wait_for(worker, 10) == "event"


def test_success_resets_the_back_off() -> None:
    async def pauses() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(jitter=lambda: 0.0)
        first = [queue.retry("a") for _ in range(3)]
        queue.succeeded("a")
        return [*first, queue.retry("a")]

    assert asyncio.run(pauses()) == [1.0, 2.0, 4.0, 1.0]
