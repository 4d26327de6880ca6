"""The unit protocol's invariants, against any order of messages, losses and returns."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.coordinator.world import SimLane, World

prompts = st.lists(st.integers(1, 63), min_size=1, max_size=20)


class Unit(RuleBasedStateMachine):
    @initialize(
        attention=st.integers(1, 3), expert=st.integers(1, 2), lead=st.integers(1, 3), rows=st.integers(1, 8)
    )
    def begin(self, attention: int, expert: int, lead: int, rows: int) -> None:
        self.world = World(attention=attention, expert=expert, lead=lead, rows=rows)
        self.places = self.world.core.members.places
        self.world.connect_gateway()
        for place in self.places:
            self.world.start(place)
        self.highest_epoch = 0

    @rule(choices=st.lists(st.integers(0, 1 << 16), min_size=1, max_size=12))
    def deliver(self, choices: list[int]) -> None:
        """Some messages arrive: in order on each connection, in any order across them."""
        for choice in choices:
            waiting = self.world.deliverable()
            if waiting:
                self.world.deliver(*waiting[choice % len(waiting)])

    @rule(prompt=prompts, most=st.integers(1, 20), seed=st.integers(0, 3), ignore_eos=st.booleans())
    def submit(self, prompt: list[int], most: int, seed: int, ignore_eos: bool) -> None:
        self.world.submit(prompt, most=most, seed=seed, ignore_eos=ignore_eos)

    @precondition(lambda self: self.world.open_requests())
    @rule(choice=st.integers(0, 1 << 16))
    def cancel(self, choice: int) -> None:
        requests = self.world.open_requests()
        self.world.cancel(requests[choice % len(requests)].request_id)

    @rule(choice=st.integers(0, 1 << 16))
    def kill(self, choice: int) -> None:
        self.world.kill(self.places[choice % len(self.places)])

    @rule(choice=st.integers(0, 1 << 16))
    def start(self, choice: int) -> None:
        """A new process in a place: an empty one, or one whose process still lives (a duplicate)."""
        self.world.start(self.places[choice % len(self.places)])

    @precondition(lambda self: self.world.workers)
    @rule(choice=st.integers(0, 1 << 16))
    def reconnect(self, choice: int) -> None:
        members = list(self.world.workers)
        self.world.reconnect(members[choice % len(members)])

    @precondition(lambda self: self.world.workers)
    @rule(choice=st.integers(0, 1 << 16), accused=st.integers(0, 1 << 16))
    def fault(self, choice: int, accused: int) -> None:
        members = list(self.world.workers)
        peer = [None, *self.places][accused % (len(self.places) + 1)]
        self.world.fault(members[choice % len(members)], peer)

    @rule()
    def gateway_reconnects(self) -> None:
        self.world.connect_gateway()

    @rule()
    def coordinator_restarts(self) -> None:
        self.world.restart_coordinator()

    @rule(seconds=st.sampled_from([0.1, 0.9, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def at_most_lead_steps_are_out(self) -> None:
        work = self.world.core.work
        assert len(work.pending) <= work.lead

    @invariant()
    def every_request_is_in_one_place(self) -> None:
        work = self.world.core.work
        places = [*work.waiting, *(request for lane in work.lanes.values() for request in lane.running)]
        assert sorted(map(id, places)) == sorted(map(id, work.requests.values()))

    @invariant()
    def pages_are_never_given_out_twice(self) -> None:
        for lane in self.world.core.work.lanes.values():
            assert sum(map(lane.pages, lane.running)) <= lane.capacity.kv_pages
            assert len(lane.running) <= lane.capacity.table_slots

    def teardown(self) -> None:
        """After any finite number of losses and returns every admitted request ends, with the
        model's own words, and every lane has all its pages back."""
        if not hasattr(self, "world"):
            return
        for place in self.places:
            if place not in self.world.workers:
                self.world.start(place)
        self.world.settle()
        for owned in self.world.owned.values():
            if owned.request_id in self.world.cancelled:
                continue
            rejection = self.world.rejected.get(owned.request_id)
            assert owned.finish_reason or (
                rejection and rejection.reason in ("too_long", "queue_full", "failed")
            )
        self._flush_frees()
        for worker in self.world.workers.values():
            if isinstance(worker, SimLane):
                assert worker.free_pages == worker.capacity.kv_pages, (
                    f"{worker.member} holds {worker.resident}"
                )

    def _flush_frees(self) -> None:
        for _ in range(5):
            self.world.pass_time(0.1)
            self.world.settle()
            while waiting := self.world.deliverable():
                self.world.deliver(*waiting[0])


TestUnit = Unit.TestCase
TestUnit.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
