"""What coordinators say of their units, asked over real HTTP. The coordinators here only answer `/status`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from afd_operator.controller import reports as module
from afd_operator.controller.observe import Key
from afd_operator.controller.reports import Reports
from afd_operator.lifecycle.observed import PodState
from afd_unit import ports
from afd_unit.identity import Role
from afd_unit.report import UnitReport, UnitState, encode

KEY = Key("prod", "demo")
# The port is fixed, so each coordinator has a loopback address of its own, as pods do.
ADDRESSES = (f"127.77.{n // 250}.{n % 250 + 1}" for n in itertools.count())


def report(deployment: str = "prod/demo", unit: int = 0, epoch: int = 1) -> bytes:
    return encode(
        UnitReport(
            deployment=deployment,
            unit=unit,
            state=UnitState.SERVING,
            epoch=epoch,
            committed_step=0,
            workers=[],
        )
    )


def pod(ip: str, unit: int = 0, **facts: object) -> PodState:
    base: dict[str, object] = {
        "name": f"demo-{unit}-coord", "uid": f"uid-{unit}", "owner_uid": "u", "role": Role.COORDINATOR,
        "unit": unit, "ip": ip, "phase": "Running", "created": datetime(2026, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    return PodState(**{**base, **facts})  # type: ignore[arg-type]


class Coordinator:
    """Answers with `body` to whoever shows `token`."""

    def __init__(self, ip: str, body: bytes, token: str) -> None:
        self.ip, self.body, self.token = ip, body, token
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        return web.Response(body=self.body)


@asynccontextmanager
async def coordinator(body: bytes, token: str = "secret") -> AsyncIterator[Coordinator]:
    found = Coordinator(next(ADDRESSES), body, token)
    app = web.Application()
    app.router.add_get("/status", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, found.ip, ports.COORDINATOR_HTTP).start()
    try:
        yield found
    finally:
        await runner.cleanup()


@pytest.fixture
async def reports(tmp_path: Path) -> AsyncIterator[Reports]:
    token = tmp_path / "token"
    token.write_text("secret\n")
    found = Reports(token)
    yield found
    await found.close()


async def test_a_report_is_asked_for_once_and_kept_while_it_is_fresh(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(report(epoch=7)) as there:
        assert (await reports.of(KEY, (pod(there.ip),)))[0].epoch == 7
        there.body = report(epoch=8)
        assert (await reports.of(KEY, (pod(there.ip),)))[0].epoch == 7
        assert there.asked == 1
        monkeypatch.setattr(module, "FRESH_S", 0.0)
        assert (await reports.of(KEY, (pod(there.ip),)))[0].epoch == 8


async def test_a_coordinator_that_became_ready_or_was_replaced_is_asked_anew(reports: Reports) -> None:
    async with coordinator(report()) as there:
        for state in (pod(there.ip), pod(there.ip, ready=True), pod(there.ip, ready=True, uid="another")):
            await reports.of(KEY, (state,))
        assert there.asked == 3


BAD: list[tuple[str, Callable[[], bytes]]] = [
    ("another unit's (the address was used again)", lambda: report(unit=1)),
    ("another deployment's", lambda: report(deployment="other/demo")),
    ("no JSON", lambda: b"<html>"),
    ("JSON of another shape", lambda: b"[]"),
    ("too large", lambda: b" " * (module.LARGEST_BYTES + 1)),
    ("empty", lambda: b""),
]


@pytest.mark.parametrize("body", [b for _, b in BAD], ids=[name for name, _ in BAD])
async def test_an_answer_that_is_of_no_use_is_no_report(reports: Reports, body: Callable[[], bytes]) -> None:
    async with coordinator(body()) as there:
        assert await reports.of(KEY, (pod(there.ip),)) == {}


async def test_who_does_not_answer_or_does_not_know_us_has_no_report(reports: Reports) -> None:
    async with coordinator(report(), token="another") as stranger, coordinator(report(unit=1)) as there:
        found = await reports.of(KEY, (pod(stranger.ip), pod(there.ip, 1), pod(next(ADDRESSES), 2)))
    assert set(found) == {1}


async def test_only_running_coordinators_are_asked(reports: Reports) -> None:
    async with coordinator(report()) as there:
        states = (pod(there.ip, phase="Pending"), pod(there.ip, 1, role=Role.ATTENTION))
        assert await reports.of(KEY, states) == {}
        assert there.asked == 0
