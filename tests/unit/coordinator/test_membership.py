"""Seats, epochs and the four moves, one case at a time. Orders and mixtures: `test_invariants`."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.coordinator.world import TIMES, World, capacity

from afd_runtime.coordinator.epochs import LONGEST_DELAY_S, Epochs
from afd_runtime.coordinator.members import HIGHEST_NUMBER, LOST_AFTER_S, Members
from afd_runtime.protocol.messages import LaneResult, Register
from afd_runtime.protocol.plan import StepPlan
from afd_unit.identity import Member, Role
from afd_unit.report import UnitState

LANE, OTHER, EXPERT = Member(0, Role.ATTENTION, 0), Member(0, Role.ATTENTION, 1), Member(0, Role.EXPERT, 0)


def register(member: Member = LANE, incarnation: int = 1, **changes: object) -> Register:
    lane = member.role is Role.ATTENTION
    made = Register(
        member=member,
        incarnation=incarnation,
        credential="",
        checkpoint="c",
        capacity=capacity() if lane else None,
        data_address=None if lane else "127.0.0.1:1",
    )
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("why", "asks", "says"),
    [
        ("a place of the unit", register(), None),
        ("no such place", register(Member(0, Role.ATTENTION, 2)), "no place"),
        ("a place of another unit", register(Member(1, Role.ATTENTION, 0)), "no place"),
        ("not a worker", register(Member(0, Role.GATEWAY, 0)), "no place"),
        ("a lane without capacity", register(capacity=None), "capacity"),
        ("an expert worker without address", register(EXPERT, data_address=None), "data address"),
        ("another checkpoint than the others'", register(checkpoint="d"), "the same one"),
        ("an epoch that no unit reaches", register(epoch=HIGHEST_NUMBER + 1), "past any life"),
    ],
)
def test_who_is_seated(why: str, asks: Register, says: str | None) -> None:
    members = Members(unit=0, attention=2, expert=1)
    members.register(register(OTHER, 7), b"other", 0.0)
    refusal = members.refusal(asks, b"new")
    assert (refusal is None) == (says is None), why
    assert says is None or says in (refusal or "")


def test_one_connection_fills_one_place() -> None:
    members = Members(unit=0, attention=2, expert=1)
    members.register(register(), b"a", 0.0)
    assert "fills place" in (members.refusal(register(OTHER), b"a") or "")


def test_a_superseded_process_stays_out_while_its_place_is_taken() -> None:
    """Else two processes for one place would take it from one another for ever."""
    members = Members(unit=0, attention=1, expert=1)
    members.register(register(incarnation=1), b"a", 0.0)
    old = members.register(register(incarnation=2), b"b", 0.0)
    assert old is not None
    assert old.peer == b"a"
    assert members.refusal(register(incarnation=1), b"a") is not None
    assert members.refusal(register(incarnation=2), b"b") is None


def test_a_superseded_process_may_return_to_an_empty_place() -> None:
    """A dying process's registration was overtaken by its successor's: the dying one looks newer."""
    members = Members(unit=0, attention=1, expert=1)
    successor, dying = register(incarnation=2), register(incarnation=1)
    members.register(successor, b"b", 0.0)
    members.register(dying, b"a", 0.0)
    assert members.refusal(successor, b"b") is not None
    members.leave(LANE)
    assert members.refusal(successor, b"b") is None


def test_a_checkpoint_binds_only_while_someone_has_it() -> None:
    members = Members(unit=0, attention=1, expert=1)
    members.register(register(), b"a", 0.0)
    members.leave(LANE)
    assert members.refusal(register(EXPERT, checkpoint="new"), b"e") is None


def test_what_a_unit_needs() -> None:
    members = Members(unit=0, attention=2, expert=1)
    assert members.needs() == "0/expert/0, a lane"
    members.register(register(EXPERT), b"e", 0.0)
    members.register(register(OTHER), b"o", 0.0)
    assert members.needs() is None, "one lane is enough"


def test_repeated_faults_wait_ever_longer_and_progress_forgives() -> None:
    epochs = Epochs()
    delays = []
    for _ in range(10):
        epochs.fault(0.0)
        delays.append(epochs.delayed_s(0.0))
    assert delays[:4] == [0.0, 0.1, 0.2, 0.4]
    assert delays[-1] == LONGEST_DELAY_S
    epochs.progress()
    assert epochs.delayed_s(0.0) == 0.0


def state(world: World) -> tuple[UnitState, str | None]:
    return world.core.epochs.state, world.core.waiting_for(world.now_s)


def test_forming_serving_paused_serving() -> None:
    world = World(attention=1, expert=1)
    assert state(world) == (UnitState.FORMING, "0/expert/0, a lane")
    world.start(EXPERT)
    world.start(LANE)
    world.settle()
    assert state(world) == (UnitState.SERVING, None)
    assert world.core.epochs.number == 1
    world.kill(EXPERT)
    for _ in range(5):
        world.pass_time(LOST_AFTER_S / 4)
    assert state(world) == (UnitState.PAUSED, "0/expert/0")
    world.start(EXPERT)
    world.settle()
    assert state(world) == (UnitState.SERVING, None)
    assert world.core.epochs.number == 2


def test_a_lane_that_is_lost_does_not_pause_the_others() -> None:
    world = World.whole(attention=2)
    names = [world.submit([1, 2, 3], most=20, seed=seed, ignore_eos=True) for seed in range(4)]
    for _ in range(30):
        world.deliver(*world.deliverable()[0])
    before = world.core.epochs.number
    world.kill(LANE)
    world.core.gone(b"nobody", world.now_s)
    world.settle()
    assert state(world)[0] is UnitState.SERVING
    assert world.core.epochs.number == before + 1
    assert all(world.owned[name].finish_reason == "length" for name in names)
    assert world.counts.of["replayed"] > 0


def test_a_member_that_is_accused_must_be_heard_before_the_next_table() -> None:
    world = World.whole()
    world.fault(LANE, EXPERT)
    while world.deliverable():
        world.deliver(*world.deliverable()[0])
    assert state(world) == (UnitState.PAUSED, "a sign of life of 0/expert/0")
    world.heartbeat(EXPERT)
    world.now_s += 0.1
    world.settle()
    assert state(world) == (UnitState.SERVING, None)


def test_silence_while_the_coordinator_itself_was_stalled_is_not_the_workers() -> None:
    world = World.whole()
    world.core.tick(world.now_s)
    world.now_s += 60.0
    world.core.tick(world.now_s)
    assert state(world)[0] is UnitState.SERVING


def test_a_silent_worker_is_lost() -> None:
    world = World.whole(attention=2)
    del world.workers[OTHER]
    for _ in range(5):
        world.pass_time(0.9)
    assert world.core.members.missing(Role.ATTENTION) == [OTHER]
    assert state(world)[0] is UnitState.SERVING


@pytest.mark.parametrize(
    "changes",
    [
        {"sampled": []},
        {"step": 999},
        {"times": msgspec.structs.replace(TIMES, compute_us=float("nan"))},
        {"times": msgspec.structs.replace(TIMES, rounds=-1)},
    ],
    ids=["no token", "a step that is not out", "a time that is none", "negative rounds"],
)
def test_a_result_that_contradicts_its_plan_ends_the_epoch_and_harms_nobody(
    changes: dict[str, object],
) -> None:
    world = World.whole(attention=1)
    name = world.submit([1, 2, 3], most=6, ignore_eos=True)
    lane = world.lane()
    run, spoilt = lane.run, []

    def spoil(plan: object) -> LaneResult:
        result = run(plan)  # type: ignore[arg-type]
        if not spoilt and result.sampled:
            spoilt.append(result)
            return msgspec.structs.replace(result, **changes)
        return result

    lane.run = spoil  # type: ignore[method-assign]
    world.settle()
    assert spoilt
    assert world.core.epochs.number == 2
    assert world.owned[name].finish_reason == "length"


def test_a_request_with_which_every_step_fails_ends_and_the_unit_goes_on() -> None:
    """Else it would be run again for ever, and nobody else with it."""
    world = World.whole(attention=1)
    poison = world.submit([5, 5, 5], most=4, ignore_eos=True)
    lane = world.lane()
    run = lane.run

    def refuse_poison(plan: StepPlan) -> LaneResult | None:
        if any(work.request_id == poison for batch in plan.microbatches for work in batch):
            world.fault(LANE, None)
            return None
        return run(plan)

    lane.run = refuse_poison  # type: ignore[method-assign, assignment]
    world.settle()
    assert world.rejected[poison].reason == "failed"
    fine = world.submit([1, 2, 3], most=4, ignore_eos=True)
    world.settle()
    assert world.owned[fine].finish_reason == "length"


def test_a_new_coordinator_goes_above_every_epoch_it_hears_of() -> None:
    world = World.whole()
    for _ in range(3):
        world.reconnect(LANE)
        world.settle()
    highest = world.core.epochs.number
    world.restart_coordinator()
    world.settle()
    assert world.core.epochs.number > highest


def test_a_stranger_is_told_to_register() -> None:
    world = World.whole()
    world.core.worker_said(b"who", register(LANE), world.now_s)  # type: ignore[arg-type]
    ((peer, said),) = world.core.take_outbox()
    assert (peer, type(said).__name__) == (b"who", "Refused")


@pytest.mark.parametrize("lead", [0, 4])
def test_a_lead_beyond_the_protocols_is_refused(lead: int) -> None:
    with pytest.raises(ValueError, match="lead"):
        World(lead=lead)
