"""The gateway through the real `openai` client: what its users rely on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tests.unit.server.unit import CONTEXT, LocalUnit

from afd_unit import metrics
from afd_unit.metrics import Kind

PROMPT = "Once upon a time"


@pytest.fixture
async def unit(tmp_path: Path) -> AsyncIterator[LocalUnit]:
    async with LocalUnit(tmp_path) as unit:
        yield unit


@pytest.fixture
async def client(unit: LocalUnit) -> openai.AsyncOpenAI:
    return unit.client()


async def expected(unit: LocalUnit, prompt: str, seed: int, most: int, *, ignore_eos: bool = True) -> str:
    return unit.text(await unit.tokenizer.prompt(prompt), seed, most, ignore_eos=ignore_eos)


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    listed = await client.models.list()
    assert [model.id for model in listed.data] == ["sim"]
    assert (await client.models.retrieve("sim")).object == "model"


async def test_a_completion_has_text_usage_and_a_reason(unit: LocalUnit, client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="sim", prompt=PROMPT, max_tokens=20, seed=3, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].text == await expected(unit, PROMPT, 3, 20)
    assert answer.choices[0].finish_reason == "length"
    prompt_tokens = len(await unit.tokenizer.prompt(PROMPT))
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt_tokens, 20)
    assert answer.usage.total_tokens == prompt_tokens + 20


async def test_a_stream_gives_the_same_text_and_usage_when_asked(
    unit: LocalUnit, client: openai.AsyncOpenAI
) -> None:
    stream = await client.completions.create(
        model="sim",
        prompt=PROMPT,
        max_tokens=60,
        seed=3,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == await expected(
        unit, PROMPT, 3, 60
    )
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 60
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_the_end_token_ends_an_answer_and_is_not_text(
    unit: LocalUnit, client: openai.AsyncOpenAI
) -> None:
    prompt = await unit.tokenizer.prompt(PROMPT)
    seed = next(seed for seed in range(500) if len(unit.answer_tokens(prompt, seed, 100)) < 100)
    tokens = unit.answer_tokens(prompt, seed, 100)
    answer = await client.completions.create(model="sim", prompt=PROMPT, max_tokens=100, seed=seed)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].text == unit.tokenizer.decode(tokens[:-1])
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(tokens)


async def test_chat_speaks_as_assistant_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    ask: dict[str, Any] = {
        "model": "sim",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_completion_tokens": 30,
        "seed": 5,
        "extra_body": {"ignore_eos": True},
    }
    whole = await client.chat.completions.create(**ask)
    assert whole.choices[0].message.role == "assistant"
    stream = await client.chat.completions.create(**ask, stream=True)
    deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 30


async def test_a_stop_string_is_found_across_tokens_and_never_shown(
    unit: LocalUnit, client: openai.AsyncOpenAI
) -> None:
    text = await expected(unit, PROMPT, 7, 60)
    stop = text[20:24]
    ask: dict[str, Any] = {
        "model": "sim",
        "prompt": PROMPT,
        "max_tokens": 60,
        "seed": 7,
        "stop": ["not in it", stop],
        "extra_body": {"ignore_eos": True},
    }
    whole = await client.completions.create(**ask)
    assert whole.choices[0].text == text[: text.index(stop)]
    assert whole.choices[0].finish_reason == "stop"
    stream = await client.completions.create(**ask, stream=True)
    shown = [choice.text async for chunk in stream for choice in chunk.choices]
    assert "".join(shown) == whole.choices[0].text


async def test_several_prompts_and_answers_come_by_index(unit: LocalUnit, client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="sim", prompt=["one", "two"], n=2, max_tokens=8, seed=10, extra_body={"ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    # Each answer has a seed of its own, counted from the request's.
    for index, prompt in enumerate(["one", "one", "two", "two"]):
        assert answer.choices[index].text == await expected(unit, prompt, 10 + index, 8)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 32


async def test_a_prompt_may_be_tokens(unit: LocalUnit, client: openai.AsyncOpenAI) -> None:
    tokens = await unit.tokenizer.prompt(PROMPT)
    answer = await client.completions.create(
        model="sim", prompt=tokens, max_tokens=8, seed=1, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].text == await expected(unit, PROMPT, 1, 8)


async def test_many_at_once_each_get_their_own_answer(unit: LocalUnit, client: openai.AsyncOpenAI) -> None:
    async def one(seed: int) -> None:
        prompt = PROMPT * (1 + seed % 3)
        stream = await client.completions.create(
            model="sim", prompt=prompt, max_tokens=24, seed=seed, stream=True, extra_body={"ignore_eos": True}
        )
        text = "".join([choice.text async for chunk in stream for choice in chunk.choices])
        assert text == await expected(unit, prompt, seed, 24)

    await asyncio.gather(*(one(seed) for seed in range(48)))


REFUSED: list[tuple[str, dict[str, Any], int, str | None]] = [
    ("no such model", {"model": "other"}, 404, "model"),
    ("temperature above OpenAI's range", {"temperature": 3}, 400, "temperature"),
    ("a wrong type", {"temperature": "hot"}, 400, "temperature"),
    ("top_p of nothing", {"top_p": 0}, 400, "top_p"),
    ("a negative top_k", {"top_k": -2}, 400, "top_k"),
    ("no tokens wanted", {"max_tokens": 0}, 400, "max_tokens"),
    ("more than the context", {"max_tokens": CONTEXT}, 400, "prompt"),
    ("no answer wanted", {"n": 0}, 400, "n"),
    ("too many answers", {"n": 1000}, 400, "n"),
    ("an empty stop string", {"stop": ""}, 400, "stop"),
    ("too many stop strings", {"stop": ["x"] * 17}, 400, "stop"),
    ("usage of a stream that is none", {"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ("not done here: logprobs", {"logprobs": 0}, 400, "logprobs"),
    ("not done here: penalties", {"presence_penalty": 0.5}, 400, "presence_penalty"),
    ("not done here: echo", {"echo": True}, 400, "echo"),
    ("not done here: best_of", {"best_of": 3}, 400, "best_of"),
    ("an empty prompt", {"prompt": ""}, 400, "prompt"),
    ("a prompt of no kind", {"prompt": ["x", 1]}, 400, "prompt"),
    ("a token that is none", {"prompt": [1_000_000]}, 400, "prompt"),
    ("a negative token", {"prompt": [-1]}, 400, "prompt"),
    ("no prompt", {"prompt": None}, 400, "prompt"),
]


@pytest.mark.parametrize(("why", "fields", "status", "param"), REFUSED, ids=[case[0] for case in REFUSED])
async def test_what_is_refused_names_the_parameter(
    unit: LocalUnit, why: str, fields: dict[str, Any], status: int, param: str | None
) -> None:
    body = {"model": "sim", "prompt": "x", **fields}
    async with aiohttp.ClientSession() as http, http.post(f"{unit.url}/v1/completions", json=body) as answer:
        told = await answer.json()
    assert answer.status == status, told
    assert told["error"]["param"] == param
    assert told["error"]["type"] == "invalid_request_error"
    assert told["error"]["message"]


async def test_defaults_that_clients_spell_out_are_fine(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="sim",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ],
        max_tokens=4,
        temperature=0,
        presence_penalty=0,
        frequency_penalty=0,
        logprobs=False,
        tools=[],
        response_format={"type": "text"},
        user="someone",
    )
    assert answer.choices[0].finish_reason in ("length", "stop")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'{"model": "sim"}', "messages"),
        (b'{"model": "sim", "messages": []}', "messages"),
        (b'{"model": "sim", "messages": [{"role": "wizard", "content": "x"}]}', "messages[0].role"),
        (b'{"model": "sim", "messages": [{"role": "user"}]}', "messages[0].content"),
        (
            b'{"model": "sim", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            "messages[0].content",
        ),
    ],
)
async def test_a_chat_body_that_is_none(unit: LocalUnit, body: bytes, param: str | None) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{unit.url}/v1/chat/completions", data=body) as answer,
    ):
        told = await answer.json()
    assert (answer.status, told["error"]["param"]) == (400, param), told


async def test_a_body_beyond_the_limit_is_413(unit: LocalUnit) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{unit.url}/v1/completions", data=b'"' + b"x" * (9 << 20)) as answer,
    ):
        assert answer.status == 413
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_unknown_paths_have_openais_error_shape(unit: LocalUnit) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{unit.url}/v1/nothing") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["message"]


async def test_a_full_queue_is_429_with_a_time_to_come_back(
    unit: LocalUnit, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afd_runtime.coordinator.admission.MAX_WAITING", 0)
    with pytest.raises(openai.RateLimitError) as refused:
        await client.completions.create(model="sim", prompt="x", max_tokens=2)
    assert int(refused.value.response.headers["Retry-After"]) >= 1


async def test_a_client_that_hangs_up_frees_its_lane(unit: LocalUnit, client: openai.AsyncOpenAI) -> None:
    unit.delay_s = 0.02
    stream = await client.completions.create(
        model="sim", prompt=PROMPT, max_tokens=200, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        break
    await stream.close()
    assert unit.core is not None
    core = unit.core
    await unit.until(lambda: not core.work.requests)
    await unit.until(
        lambda: all(lane.free_pages == lane.capacity.kv_pages for lane in core.work.lanes.values())
    )


async def test_a_waiting_client_that_hangs_up_frees_its_lane(unit: LocalUnit) -> None:
    unit.delay_s = 0.02
    body = {"model": "sim", "prompt": PROMPT, "max_tokens": 200, "ignore_eos": True}
    async with aiohttp.ClientSession() as http:
        post = asyncio.create_task(http.post(f"{unit.url}/v1/completions", json=body))
        assert unit.core is not None
        core = unit.core
        await unit.until(lambda: core.work.requests)
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)
    await unit.until(lambda: not core.work.requests)


async def test_every_metric_of_the_tables_appears_after_traffic(
    unit: LocalUnit, client: openai.AsyncOpenAI
) -> None:
    await client.completions.create(model="sim", prompt=PROMPT, max_tokens=6, extra_body={"ignore_eos": True})
    with pytest.raises(openai.BadRequestError):
        await client.completions.create(model="sim", prompt="x", max_tokens=1000)
    assert unit.core is not None
    core = unit.core
    core.worker_said(b"a stranger", None, 0.0)  # type: ignore[arg-type]
    core._observer.rejected("too_long")
    async with aiohttp.ClientSession() as http:
        for table, port in ((metrics.COORDINATOR, unit.http_port), (metrics.GATEWAY, unit.port)):
            async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                text = await answer.text()
            lines = text.splitlines()
            for metric in table:
                for series in metric.series:
                    found = [line for line in lines if line.split("{")[0].split(" ")[0] == series]
                    assert found, f"{series} is not exported"
                    if metric.kind is Kind.HISTOGRAM and series.endswith("_count"):
                        assert any(float(line.rsplit(" ", 1)[1]) > 0 for line in found), (
                            f"{series} was never fed"
                        )
            assert "_created" not in text


async def test_status_is_for_who_may_read_it(unit: LocalUnit) -> None:
    url = f"http://127.0.0.1:{unit.http_port}"
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/status") as answer:
            assert answer.status == 401
        async with http.get(f"{url}/status", headers={"Authorization": "Bearer wrong"}) as answer:
            assert answer.status == 403
        async with http.get(
            f"{url}/status", headers={"Authorization": f"Bearer {unit.credential.read_text()}"}
        ) as answer:
            report = json.loads(await answer.text())
        async with http.get(f"{url}/ready") as answer:
            assert answer.status == 200
    assert report["state"] == "serving"
    assert [worker["ready"] for worker in report["workers"]] == [True] * 3
