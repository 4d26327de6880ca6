"""The control socket against peers that do not behave: nothing they send stops the unit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.test_membership import register
from tests.unit.server.unit import SECRET, LocalUnit

from afd_runtime.protocol import codec
from afd_runtime.protocol.messages import Cancel, GatewayHello, Heartbeat, Refused, Submit, Welcome
from afd_runtime.protocol.plan import Sampling
from afd_unit.identity import Member, Role

SUBMIT = Submit(request_id="r", attempt=0, prompt=[1], sampling=Sampling(), max_new_tokens=1)


@pytest.fixture
async def unit(tmp_path: Path) -> AsyncIterator[LocalUnit]:
    async with LocalUnit(tmp_path, attention=1) as unit:
        yield unit


@asynccontextmanager
async def peer(unit: LocalUnit) -> AsyncIterator[zmq.asyncio.Socket]:
    dealer = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    dealer.connect(f"tcp://127.0.0.1:{unit.control_port}")
    try:
        yield dealer
    finally:
        dealer.close(linger=0)


async def heard(dealer: zmq.asyncio.Socket) -> object:
    frame = await asyncio.wait_for(dealer.recv(), 10)
    for decode in (codec.decode_at_gateway, codec.decode_at_worker):
        try:
            return decode(frame)
        except codec.FrameError:
            continue
    raise AssertionError(f"{frame!r} is no message")


async def still_serves(unit: LocalUnit) -> None:
    answer = await unit.client().completions.create(model="sim", prompt="x", max_tokens=3)
    assert answer.choices[0].finish_reason in ("stop", "length")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_frame_error(frame: bytes) -> None:
    for decode in (codec.decode_at_coordinator, codec.decode_at_worker, codec.decode_at_gateway):
        try:
            decode(frame)
        except codec.FrameError:
            continue


@given(at=st.integers(0, 200), value=st.integers(0, 255))
def test_a_damaged_message_is_a_message_or_a_frame_error(at: int, value: int) -> None:
    frame = bytearray(codec.encode(SUBMIT))
    frame[at % len(frame)] = value
    try:
        codec.decode_at_coordinator(bytes(frame))
    except codec.FrameError:
        return


NOISE = [
    [b""],
    [b"\xff" * 50],
    [b"\x81\xa4type\xa8register"],
    [codec.encode(SUBMIT), b"a second frame"],
    [b"\x91" * 5000],
]


@pytest.mark.parametrize("frames", NOISE, ids=["empty", "noise", "half", "two frames", "nested"])
async def test_what_is_no_message_is_dropped_and_counted(unit: LocalUnit, frames: list[bytes]) -> None:
    async with peer(unit) as dealer:
        await dealer.send_multipart(frames)
        await unit.until(lambda: "afd_messages_dropped_total{" in exposition(unit))
    assert 'reason="unreadable"' in exposition(unit)
    await still_serves(unit)


def exposition(unit: LocalUnit) -> str:
    assert unit.core is not None
    return unit.core._observer.exposition(unit.core, 0.0).decode()  # type: ignore[attr-defined, no-any-return]


async def test_a_frame_beyond_the_limit_ends_its_connection_and_no_other(unit: LocalUnit) -> None:
    async with peer(unit) as dealer:
        monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        await dealer.send(b"x" * (codec.MAX_FRAME_BYTES + 1))
        await asyncio.wait_for(monitor.recv_multipart(), 10)
        dealer.disable_monitor()
        monitor.close()
    await still_serves(unit)


@pytest.mark.parametrize(
    "message",
    [SUBMIT, Cancel(request_id="r"), Heartbeat(incarnation=1, epoch=1)],
    ids=["submit", "cancel", "heartbeat"],
)
async def test_who_has_not_registered_is_told_to(
    unit: LocalUnit, message: Submit | Cancel | Heartbeat
) -> None:
    async with peer(unit) as dealer:
        await dealer.send(codec.encode(message))
        assert isinstance(await heard(dealer), Refused)
    assert unit.core is not None
    assert not unit.core.work.requests


async def test_a_wrong_credential_is_refused_and_the_place_stays_taken(unit: LocalUnit) -> None:
    assert unit.core is not None
    seat = unit.core.members.seats[Member(0, Role.ATTENTION, 0)]
    async with peer(unit) as dealer:
        await dealer.send(codec.encode(register(incarnation=99)))
        refused = await heard(dealer)
        await dealer.send(codec.encode(GatewayHello(name="g", incarnation=1, credential="wrong")))
        assert isinstance(await heard(dealer), Refused)
    assert isinstance(refused, Refused)
    assert SECRET not in refused.reason
    assert unit.core.members.seats[seat.member] == seat


async def test_a_gateway_is_welcomed_and_may_cancel_only_its_own(unit: LocalUnit) -> None:
    unit.delay_s = 0.02
    stream = await unit.client().completions.create(
        model="sim", prompt="x", max_tokens=100, seed=1, stream=True, extra_body={"ignore_eos": True}
    )
    assert unit.core is not None
    core = unit.core
    await unit.until(lambda: core.work.requests)
    async with peer(unit) as dealer:
        await dealer.send(codec.encode(GatewayHello(name="other", incarnation=1, credential=SECRET)))
        assert isinstance(await heard(dealer), Welcome)
        (request_id,) = core.work.requests
        await dealer.send(codec.encode(Cancel(request_id=request_id)))
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == unit.text(await unit.tokenizer.prompt("x"), 1, 100, ignore_eos=True)
