"""Losses behind the gateway while answers stream: the client sees a pause and the same text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import openai
import pytest
from tests.unit.server.unit import LocalUnit

from afd_unit.identity import Member, Role

PROMPT = "Once upon a time"
TOKENS = 120
LANE, EXPERT = Member(0, Role.ATTENTION, 0), Member(0, Role.EXPERT, 0)


@pytest.fixture
async def unit(tmp_path: Path) -> AsyncIterator[LocalUnit]:
    async with LocalUnit(tmp_path, delay_s=0.005) as unit:
        yield unit


async def streamed(client: openai.AsyncOpenAI, seed: int, begun: asyncio.Event) -> str:
    stream = await client.completions.create(
        model="sim", prompt=PROMPT, max_tokens=TOKENS, seed=seed, stream=True, extra_body={"ignore_eos": True}
    )
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].text
        if len(text) > 5:
            begun.set()
    return text


async def lane_is_replaced(unit: LocalUnit) -> None:
    await unit.kill_worker(LANE)
    unit.start_worker(LANE)


async def lane_is_lost(unit: LocalUnit) -> None:
    await unit.kill_worker(LANE)


async def all_lanes_are_replaced(unit: LocalUnit) -> None:
    lanes = [place for place in unit.places if place.role is Role.ATTENTION]
    for lane in lanes:
        await unit.kill_worker(lane)
    assert unit.core is not None
    core = unit.core
    await unit.until(lambda: not core.epochs.in_force)
    for lane in lanes:
        unit.start_worker(lane)


async def expert_is_replaced(unit: LocalUnit) -> None:
    await unit.kill_worker(EXPERT)
    assert unit.core is not None
    core = unit.core
    await unit.until(lambda: not core.epochs.in_force)
    unit.start_worker(EXPERT)


async def place_is_taken_over(unit: LocalUnit) -> None:
    """A second process comes for a place whose first one still lives."""
    old = unit.tasks.pop(str(LANE))
    unit.start_worker(LANE)
    assert unit.core is not None
    seats, newcomer = unit.core.members.seats, unit.workers[LANE].incarnation
    await unit.until(lambda: seats[LANE].incarnation == newcomer)
    old.cancel()


async def coordinator_restarts(unit: LocalUnit) -> None:
    await unit.kill_coordinator()
    await unit.start_coordinator()


async def coordinator_restarts_twice(unit: LocalUnit) -> None:
    await coordinator_restarts(unit)
    await unit.until(lambda: unit.units.serving)
    await coordinator_restarts(unit)


LOSSES: list[Callable[[LocalUnit], Awaitable[None]]] = [
    lane_is_replaced,
    lane_is_lost,
    all_lanes_are_replaced,
    expert_is_replaced,
    place_is_taken_over,
    coordinator_restarts,
    coordinator_restarts_twice,
]


@pytest.mark.parametrize("loss", LOSSES, ids=[loss.__name__ for loss in LOSSES])
async def test_the_text_is_the_same_as_without_the_loss(
    unit: LocalUnit, loss: Callable[[LocalUnit], Awaitable[None]]
) -> None:
    client = unit.client(timeout=60)
    begun = [asyncio.Event() for _ in range(6)]
    answers = [asyncio.create_task(streamed(client, seed, event)) for seed, event in enumerate(begun)]
    await asyncio.gather(*(event.wait() for event in begun))
    await loss(unit)
    prompt = await unit.tokenizer.prompt(PROMPT)
    assert await asyncio.gather(*answers) == [
        unit.text(prompt, seed, TOKENS, ignore_eos=True) for seed in range(len(answers))
    ]
    assert unit.core is not None
    core = unit.core
    await unit.until(
        lambda: all(lane.free_pages == lane.capacity.kv_pages for lane in core.work.lanes.values())
    )


async def test_without_a_serving_unit_new_requests_are_told_so(unit: LocalUnit) -> None:
    await unit.kill_worker(EXPERT)
    await unit.until(lambda: not unit.units.serving)
    with pytest.raises(openai.InternalServerError) as refused:
        await unit.client().completions.create(model="sim", prompt="x", max_tokens=2)
    assert refused.value.status_code == 503
    assert refused.value.response.headers["Retry-After"] == "1"


async def test_a_lost_units_requests_go_to_another(unit: LocalUnit, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = LocalUnit(tmp_path / "other", delay_s=0.005)
    await other.start()
    try:
        begun = [asyncio.Event() for _ in range(4)]
        answers = [
            asyncio.create_task(streamed(unit.client(timeout=60), seed, event))
            for seed, event in enumerate(begun)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        unit.coordinators.extend(other.coordinators)
        await unit.kill_coordinator()
        prompt = await unit.tokenizer.prompt(PROMPT)
        assert await asyncio.gather(*answers) == [
            unit.text(prompt, seed, TOKENS, ignore_eos=True) for seed in range(len(answers))
        ]
        assert other.core is not None
        assert other.core.work.committed_step > 0
    finally:
        await unit.start_coordinator()
        await other.__aexit__()


async def test_the_less_loaded_unit_gets_the_next_request(unit: LocalUnit, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = LocalUnit(tmp_path / "other", delay_s=0.02)
    unit.delay_s = 0.02
    await other.start()
    try:
        unit.coordinators.extend(other.coordinators)
        await unit.until(lambda: sum(link.serving for link in unit.units._all()) == 2)
        client = unit.client(timeout=60)
        answers = [asyncio.create_task(streamed(client, seed, asyncio.Event())) for seed in range(6)]
        assert unit.core is not None
        assert other.core is not None
        cores = [unit.core, other.core]
        await unit.until(lambda: [len(core.work.requests) for core in cores] == [3, 3])
        await asyncio.gather(*answers)
    finally:
        await other.__aexit__()


async def test_who_shows_the_wrong_secret_stays_outside(unit: LocalUnit, tmp_path: Path) -> None:
    unit.credential.write_text("wrong")
    await unit.kill_coordinator()
    await unit.start_coordinator()
    assert unit.core is not None
    core = unit.core
    await unit.until(lambda: 'reason="unauthenticated"' in core._observer.exposition(core, 0.0).decode())
    assert not unit.units.connected
