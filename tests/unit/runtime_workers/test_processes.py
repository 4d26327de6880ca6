"""Worker processes as they run in a pod: real processes, real sockets, a scripted coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.unit.runtime_workers.conftest import Oracle, prompts
from tests.unit.runtime_workers.worker_processes import DATA_KEY, WAIT_S, Coordinator, Unit

from afd_runtime.protocol.messages import ExpertResult, Fault, LaneResult, Refused, Register, Sampled
from afd_runtime.protocol.plan import ExpertStep, Phase, Sampling, SequenceWork, StepPlan
from afd_runtime.transport.epoch import DataEpoch
from afd_runtime.transport.round import Dispatch, Round, WireFormat
from afd_runtime.transport.tcp_lane import TcpLane
from afd_unit.identity import Member, Role

LANES = [Member(0, Role.ATTENTION, index) for index in range(2)]
EXPERTS = [Member(0, Role.EXPERT, index) for index in range(2)]
PROMPT = prompts(17)["request-0"]


class World:
    """A unit's processes and its coordinator; one request `a` on the first lane.

    Starting four processes that each import a tensor library is most of a test's time, so they are
    shared: `make_whole` brings every test to the same state, whatever the one before killed."""

    def __init__(self, folder: Path, oracle: Oracle) -> None:
        self.oracle = oracle
        self.coordinator = Coordinator()
        self.unit = Unit(folder, oracle.folder, lanes=2, experts=2)
        self.unit.write(self.coordinator.port)
        self.epoch = 0
        self.steps = 0
        self.committed = 0
        self.answer: list[int] = []

    def start(self, *members: Member) -> None:
        for member in members:
            self.coordinator.forget(member)
            self.unit.start(member.role, member.index)
        self.coordinator.wait_for_members(4)

    def make_whole(self) -> None:
        """All four members there and in a new epoch, no request anywhere, nothing heard."""
        alive = {worker.member for worker in self.unit.running()}
        self.coordinator.abort(self.epoch, self.committed)
        self.start(*(member for member in (*LANES, *EXPERTS) if member not in alive))
        self.answer.clear()
        self.announce()
        self.step(free=True)
        self.results()
        self.coordinator.heard.clear()

    def announce(self) -> None:
        self.epoch += 1
        self.coordinator.announce(self.epoch, self.committed)

    def step(
        self, *, tokens: list[int] | None = None, free: bool = False, only: list[Member] | None = None
    ) -> None:
        """Issue a step: prefill of `tokens`, or one decode of the request, or (free) none."""
        self.steps += 1
        works = [] if free else [self._work(tokens)]
        shares = {LANES[0]: works, LANES[1]: []}
        self.coordinator.step(
            {
                member: StepPlan(
                    epoch=self.epoch,
                    step=self.steps,
                    phase=Phase.DECODE if tokens is None else Phase.PREFILL,
                    bucket=32,
                    microbatches=[shares[member], []],
                    free=[("a", 0)] if free and member == LANES[0] else [],
                    sent_ns=self.steps,
                )
                for member in only or LANES
            }
        )

    def _work(self, tokens: list[int] | None) -> SequenceWork:
        if tokens is None:
            start = len(PROMPT) + len(self.answer) - 1
            return SequenceWork(request_id="a", attempt=0, start=start, count=1, sample=True)
        return SequenceWork(
            request_id="a",
            attempt=0,
            start=0,
            count=len(tokens),
            sample=True,
            tokens=tokens,
            reserve=len(tokens) + 40,
            sampling=Sampling(),
        )

    def results(self) -> list[LaneResult]:
        """Both lanes' results of the newest step, now committed."""
        results = self.coordinator.wait_for(LaneResult, 2)
        assert {result.step for result in results} == {self.steps}
        self.answer += [sampled.token for result in results for sampled in result.sampled]
        self.committed = self.steps
        return results

    def close(self) -> None:
        self.unit.close()
        self.coordinator.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, oracle: Callable[[str], Oracle]) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("unit"), oracle("plain"))
    yield made
    made.close()


@pytest.fixture
def world(shared: World) -> World:
    shared.make_whole()
    return shared


@pytest.fixture
def alone(tmp_path: Path, oracle: Callable[[str], Oracle]) -> Iterator[World]:
    """A coordinator and no worker yet."""
    made = World(tmp_path, oracle("plain"))
    yield made
    made.close()


def test_a_worker_registers_and_waits_for_a_table(alone: World) -> None:
    alone.unit.start(Role.ATTENTION, 0)
    alone.unit.start(Role.EXPERT, 1)
    alone.coordinator.wait_for_members(2)
    lane, expert = (alone.coordinator.registered[member] for member in (LANES[0], EXPERTS[1]))
    assert lane.capacity is not None
    assert (lane.capacity.vocab_size, lane.capacity.eos_token_ids) == (211, [7])
    assert {lane.credential, expert.credential} == {"a-shared-secret"}
    assert expert.data_address is not None
    assert expert.checkpoint == lane.checkpoint
    for worker in alone.unit.running():
        assert worker.get("/health")[0] == 200
        assert worker.get("/ready") == (503, "not in the member table (epoch 0)\n")
        assert "process_resident_memory_bytes" in worker.get("/metrics")[1]
        assert worker.get("/else")[0] == 404


def test_a_request_from_its_prompt_to_its_last_page(world: World) -> None:
    assert {worker.get("/ready") for worker in world.unit.running()} == {(200, "ok\n")}
    world.step(tokens=PROMPT)
    world.results()
    served = world.coordinator.wait_for(ExpertResult, 2)
    assert [result.times.rounds for result in served] == [6, 6], "three MoE layers, two microbatches"
    for _ in range(9):
        world.step()
        results = world.results()
    assert world.answer == world.oracle.greedy(PROMPT, 10)
    assert {result.sent_ns for result in results} == {world.steps}, "send times are echoed"
    world.step(free=True)
    capacity = world.coordinator.registered[LANES[0]].capacity
    assert capacity is not None
    assert {(result.free_pages, result.free_slots) for result in world.results()} == {
        (capacity.kv_pages, capacity.table_slots)
    }, "at rest, free pages are all pages"


def test_an_expert_worker_is_killed_and_comes_back(world: World) -> None:
    """Lanes notice at once, keep their pages, and go on from the committed step."""
    world.step(tokens=PROMPT)
    world.results()
    world.step()
    world.results()
    world.unit.kill(EXPERTS[1])
    faults = world.coordinator.wait_for(Fault, 2)
    assert {(fault.epoch, fault.peer) for fault in faults} == {(world.epoch, EXPERTS[1])}
    world.coordinator.abort(world.epoch, world.committed)
    for worker in world.unit.running():
        worker.wait_for("/ready", 503)
    world.start(EXPERTS[1])
    world.announce()
    world.step()
    world.results()
    world.step()
    world.results()
    assert world.answer == world.oracle.greedy(PROMPT, 4)


def test_a_lane_is_killed_in_the_middle_of_a_step(world: World) -> None:
    """The expert workers say which; the other lane's request is run again in the next epoch."""
    world.step(tokens=PROMPT)
    world.results()
    world.step(only=[LANES[0]])  # it waits for its expert workers, they for the other lane
    world.unit.kill(LANES[1])
    faults = world.coordinator.wait_for(Fault, 2)
    assert {(fault.peer, "lane 1" in fault.text) for fault in faults} == {(LANES[1], True)}
    world.coordinator.forget(LANES[1])
    world.coordinator.abort(world.epoch, world.committed)
    world.announce()
    world.step(only=[LANES[0]])
    [result] = world.coordinator.wait_for(LaneResult)
    expected = world.oracle.greedy(PROMPT, 2)
    assert result.sampled == [Sampled("a", 0, 18, expected[1])]


def test_the_coordinator_is_restarted(world: World) -> None:
    """Workers keep what they hold and say so; epochs and steps only go up."""
    world.step(tokens=PROMPT)
    world.results()
    port = world.coordinator.port
    world.coordinator.close()
    world.coordinator = Coordinator(port)
    world.coordinator.wait_for_members(4)
    again = world.coordinator.registered[LANES[0]]
    assert (again.epoch, again.committed_step) == (world.epoch, world.steps)
    assert [(held.request_id, held.attempt, held.length) for held in again.held] == [("a", 0, 17)]
    world.announce()
    world.step()
    world.results()
    assert world.answer == world.oracle.greedy(PROMPT, 2)


def test_messages_of_other_epochs_are_not_acted_on(world: World) -> None:
    world.step(tokens=PROMPT)
    world.results()
    world.announce()
    stale = StepPlan(
        epoch=world.epoch - 1, step=world.steps + 1, phase=Phase.DECODE, bucket=1, microbatches=[[]]
    )
    for lane in LANES:
        world.coordinator.say(lane, stale)
    for expert in EXPERTS:
        world.coordinator.say(
            expert, ExpertStep(epoch=1, step=7, phase=Phase.DECODE, bucket=1, microbatches=1)
        )
    world.step()
    world.results()
    assert world.answer == world.oracle.greedy(PROMPT, 2)


def test_a_plan_that_cannot_be_run_is_a_fault_and_the_lane_lives_on(world: World) -> None:
    world.step()  # nobody began request `a`
    [fault] = world.coordinator.wait_for(Fault)
    assert (fault.peer, fault.step) == (None, world.steps)
    assert "request a attempt 0 is not here" in fault.text
    world.coordinator.abort(world.epoch, world.committed)
    world.announce()
    world.step(tokens=PROMPT)
    world.results()
    assert world.answer == world.oracle.greedy(PROMPT, 1)


def test_plans_behind_an_aborted_step_are_dropped_in_silence(world: World) -> None:
    """With two steps out, the second needs what the first would have given: that is no fault."""
    world.step(tokens=PROMPT, only=[LANES[0]])  # it waits for the other lane
    world.answer.append(0)
    world.step(only=[LANES[0]])
    world.answer.clear()
    world.coordinator.abort(world.epoch, world.committed)
    world.announce()
    world.step(tokens=PROMPT)
    world.results()
    assert [message for message in world.coordinator.heard if isinstance(message, Fault)] == []
    assert world.answer == world.oracle.greedy(PROMPT, 1)


def test_a_refused_worker_tries_again(alone: World) -> None:
    worker = alone.unit.start(Role.ATTENTION, 0)
    alone.coordinator.wait_for(Register)
    alone.coordinator.say(LANES[0], Refused(reason="the clock is wrong"))
    alone.coordinator.wait_for(Register)
    assert 'reason="the clock is wrong"' in worker.log.read_text()


def test_an_expert_worker_needs_nothing_but_headers(world: World) -> None:
    """Lanes driven by somebody else's scheduler: no ExpertStep ever comes, rounds are served."""
    for lane in LANES:
        world.unit.kill(lane)
        world.coordinator.forget(lane)
    world.coordinator.add(Register(member=LANES[0], incarnation=5, credential="", checkpoint=""))
    world.announce()
    wire = WireFormat(hidden=48, top_k=2, max_rows=512, dtype=torch.float32)
    addresses = [world.coordinator.registered[member].data_address or "" for member in EXPERTS]
    epoch = DataEpoch(number=world.epoch, key=DATA_KEY, lanes={0: 5}, workers=addresses)
    endpoint = TcpLane(wire, epoch, 0)
    endpoint.connect(WAIT_S)
    for layer in range(3):
        round = Round(world.epoch, Phase.PREFILL, 1, layer, 0)
        for worker in range(2):
            endpoint.push(worker, round, Dispatch.empty(wire).first(0))
        for worker in range(2):
            assert endpoint.pull(worker, round).hidden.shape == (0, 48)
    endpoint.close()
    world.coordinator.forget(LANES[0])


def test_sigterm_ends_every_process_at_once(world: World) -> None:
    """In the middle of a step as well: the lane waits for expert workers that wait for the other."""
    world.step(tokens=PROMPT, only=[LANES[0]])
    workers = world.unit.running()
    for worker in workers:
        worker.process.terminate()
    assert [worker.process.wait(WAIT_S) for worker in workers] == [0, 0, 0, 0]


def test_a_checkpoint_that_cannot_be_served_ends_the_process_with_the_reason(
    alone: World, tmp_path: Path
) -> None:
    alone.unit.checkpoint = tmp_path / "absent"
    alone.unit.write(alone.coordinator.port)
    worker = alone.unit.start(Role.EXPERT, 0)
    assert worker.process.wait(WAIT_S) == 1
    assert "event=cannot-start" in worker.log.read_text()
    assert "is not a folder" in worker.log.read_text()


def test_no_coordinator_yet(alone: World) -> None:
    """Its name may not even resolve when workers start: they wait, alive, and stop when told."""
    alone.unit.write(alone.coordinator.port, host="coordinator.invalid")
    worker = alone.unit.start(Role.EXPERT, 0)
    worker.wait_for("/ready", 503, "not in the member table (epoch 0)\n")
    assert worker.get("/health")[0] == 200
    worker.process.terminate()
    assert worker.process.wait(WAIT_S) == 0
