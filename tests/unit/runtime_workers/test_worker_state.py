"""The small state machines of a worker process: membership, registration, the ledger, settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from afd_runtime.experts.ledger import StepLedger
from afd_runtime.protocol.messages import Abort, MemberEntry, Table
from afd_runtime.protocol.plan import ExpertStep, Phase
from afd_runtime.worker import settings
from afd_runtime.worker.membership import Membership, data_epoch
from afd_runtime.worker.proof_of_life import ProofOfLife
from afd_runtime.worker.registration import REPEAT_S, RETRY_S, Registration
from afd_runtime.worker.settings import SettingsError
from afd_unit import ports, unitfile
from afd_unit.environment import TUNING
from afd_unit.identity import Member, Role
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile, UnitFileError

ME = Member(0, Role.ATTENTION, 1)
MINE = 77


def table(epoch: int, *incarnations: int, experts: tuple[str | None, ...] = ("h:1", "h:2")) -> Table:
    """A table where my place is held by each of `incarnations` in turn, and expert workers by these."""
    mine = [MemberEntry(member=ME, incarnation=number) for number in incarnations]
    theirs = [
        MemberEntry(member=Member(0, Role.EXPERT, index), incarnation=9, data_address=address)
        for index, address in enumerate(experts)
    ]
    return Table(epoch=epoch, members=[*mine, *theirs], data_key=b"k", committed_step=0)


def test_a_worker_acts_only_in_the_epoch_whose_table_holds_its_incarnation() -> None:
    membership = Membership(ME, MINE)
    assert not membership.acts(1, "step-plan")
    assert membership.adopt(table(1, 76))
    assert not membership.acts(1, "step-plan"), "another life of the same place is in it"
    assert membership.adopt(table(2, MINE))
    assert membership.acts(2, "step-plan")
    assert not membership.acts(1, "step-plan")
    assert not membership.acts(3, "step-plan")
    assert membership.dropped == {"step-plan": 4}


def test_epochs_only_go_up() -> None:
    membership = Membership(ME, MINE)
    assert membership.adopt(table(5, MINE))
    for late in (5, 4):
        assert not membership.adopt(table(late, MINE))
    assert (membership.epoch, membership.seated) == (5, True)


def test_an_abort_ends_its_own_epoch_only() -> None:
    membership = Membership(ME, MINE)
    membership.adopt(table(5, MINE))
    assert not membership.end(Abort(epoch=4, committed_step=1))
    assert membership.acts(5, "step-plan")
    assert membership.end(Abort(epoch=5, committed_step=1))
    assert not membership.acts(5, "step-plan")


def test_the_data_plane_needs_every_expert_worker_with_its_address() -> None:
    whole = data_epoch(table(3, MINE), 2)
    assert whole is not None
    assert (whole.number, list(whole.workers), dict(whole.lanes)) == (3, ["h:1", "h:2"], {1: MINE})
    assert data_epoch(table(3, MINE, experts=("h:1",)), 2) is None
    assert data_epoch(table(3, MINE, experts=("h:1", None)), 2) is None


def test_when_a_worker_registers() -> None:
    registration = Registration()
    assert not registration.due(0), "there is no connection"
    registration.on_connected(1)
    assert registration.due(1)
    registration.on_sent(1)
    assert not registration.due(1 + REPEAT_S - 0.1)
    assert registration.due(1 + REPEAT_S), "nothing was heard: perhaps it was counted as lost meanwhile"
    registration.on_table(10, seated=True)
    assert not registration.due(1000)
    registration.on_abort(1000)
    assert not registration.due(1000 + REPEAT_S - 0.1), "a table follows at once, normally"
    assert registration.due(1000 + REPEAT_S)
    registration.on_table(1010, seated=False)
    assert registration.due(1010 + REPEAT_S)
    registration.on_refused(1020)
    assert not registration.due(1020 + RETRY_S - 0.1)
    assert registration.due(1020 + RETRY_S)
    registration.on_disconnected()
    assert not registration.due(2000)


def announced(step: int, microbatches: int = 2) -> ExpertStep:
    return ExpertStep(epoch=1, step=step, phase=Phase.DECODE, bucket=4, microbatches=microbatches)


def serve(ledger: StepLedger, step: int, rounds: int) -> None:
    for number in range(rounds):
        ledger.served(step, rows=10, waited_s=1.0, began_s=100.0 + number, ended_s=100.25 + number)


def test_a_step_is_complete_after_layers_times_microbatches() -> None:
    ledger = StepLedger(moe_layers=3)
    ledger.announce(announced(7))
    serve(ledger, 7, 5)
    assert ledger.complete() == []
    serve(ledger, 7, 1)
    [(step, times)] = ledger.complete()
    assert (step.step, times.rounds, times.rows) == (7, 6, 60)
    assert times.compute_us == pytest.approx(1.5e6)
    assert times.waited_us == pytest.approx(5e6), "the first wait is the time between steps"
    assert ledger.complete() == []


def test_rounds_may_come_before_the_announcement() -> None:
    """Rows and commands take different ways."""
    ledger = StepLedger(moe_layers=1)
    serve(ledger, 8, 2)
    ledger.announce(announced(9))
    serve(ledger, 9, 2)
    assert [step.step for step, _ in ledger.complete()] == [9]
    ledger.announce(announced(8))
    assert [step.step for step, _ in ledger.complete()] == [8]


def test_loading_may_take_long_but_a_started_main_thread_must_move() -> None:
    life = ProofOfLife(limit_s=0.0)
    assert life.alive
    life.beat()
    assert not life.alive


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    unit = UnitFile(
        deployment="local/test",
        unit=3,
        model=Model(id="m", path="/model", context_length=64),
        attention_workers=6,
        expert_workers=2,
        gpus_per_node=4,
        microbatches=2,
        coordinator="coordinator:7400",
        domain="local",
        auth=Auth(mode=AuthMode.SECRET, secret_file="/secret"),
    )
    (tmp_path / "unit.json").write_text(unitfile.encode(unit))
    return {"AFD_UNIT_FILE": str(tmp_path / "unit.json"), "AFD_POD_INDEX": "1", "AFD_DEVICE": "1"}


def test_place_ports_and_defaults(environ: dict[str, str]) -> None:
    read = settings.read(Role.ATTENTION, {**environ, "AFD_POD_IP": "10.0.0.9"})
    assert read.member == Member(3, Role.ATTENTION, 5)
    assert (read.http_port, read.data_port) == (ports.worker_http(1), ports.expert_data(1))
    assert (read.host, read.dtype, read.threads, read.max_rows) == ("10.0.0.9", "float32", 1, 512)
    assert read.credential_file == "/secret"


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"AFD_UNIT_FILE": ""}, SettingsError, "AFD_UNIT_FILE is not set"),
        ({"AFD_UNIT_FILE": "/absent"}, UnitFileError, "/absent: "),
        ({"AFD_DEVICE": "4"}, SettingsError, "AFD_DEVICE: device 4 is not one of the 4 GPUs"),
        ({"AFD_DEVICE": "2"}, SettingsError, "make attention worker 6, the unit has 6"),
        ({"AFD_POD_INDEX": "-1"}, SettingsError, "AFD_POD_INDEX is '-1'"),
        ({"AFD_DTYPE": "fp8"}, SettingsError, "AFD_DTYPE is 'fp8', one of float32"),
        ({"AFD_MAX_ROWS": "0"}, SettingsError, "AFD_MAX_ROWS is '0', a whole number of at least 1"),
        ({"AFD_KV_BYTES": "1G"}, SettingsError, "AFD_KV_BYTES is '1G'"),
    ],
)
def test_settings_that_cannot_be_used(
    environ: dict[str, str], changed: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        settings.read(Role.ATTENTION, {**environ, **changed})


@pytest.mark.parametrize("name", TUNING)
def test_what_users_may_tune_is_read(environ: dict[str, str], name: str) -> None:
    """Each name that the API lets through is a setting: a value that cannot be is refused by that name."""
    with pytest.raises(SettingsError, match=name):
        settings.read(Role.ATTENTION, {**environ, name: "none of it"})
