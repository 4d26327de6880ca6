"""`afd serve --local` with real processes and a real model: the whole product but for the cluster."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.local.command import ROOT, Command, alive, serving, until
from tests.local.model import Checkpoint

PROMPTS = ["", "It was", "The quick brown fox jumps over the lazy dog. " * 5]
TOKENS = 160


@pytest.fixture(scope="module")
def unit(small: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    scratch = tmp_path_factory.mktemp("unit")
    with serving(small.folder, scratch, "--attention", "2", "--expert", "2") as command:
        yield command


def client(unit: Command) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{unit.url}/v1", api_key="none", max_retries=0, timeout=120)


async def streamed(unit: Command, prompt: str, tokens: int, begun: asyncio.Event | None = None) -> str:
    stream = await client(unit).completions.create(
        model="small",
        prompt=prompt,
        max_tokens=tokens,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].text
        if begun is not None and len(text) > 8:
            begun.set()
    return text


async def test_32_at_once_get_transformers_tokens(unit: Command, small: Checkpoint) -> None:
    prompts = [f"{number} {PROMPTS[number % 3]}" for number in range(32)]
    answers = await asyncio.gather(*(streamed(unit, prompt, 20) for prompt in prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer == small.text(small.greedy(small.encoder.encode(prompt).ids, 20)), prompt


@pytest.mark.parametrize("child", ["attention-0", "attention-1", "expert-0", "expert-1", "coordinator"])
async def test_kill_9_while_streaming_is_a_pause(unit: Command, small: Checkpoint, child: str) -> None:
    """The text is the same as without it, for every request that was running."""
    prompts = ["It was", "the best", "of times", "and the worst"]
    begun = [asyncio.Event() for _ in prompts]
    answers = [
        asyncio.create_task(streamed(unit, prompt, TOKENS, event))
        for prompt, event in zip(prompts, begun, strict=True)
    ]
    await asyncio.wait(
        [asyncio.create_task(event.wait()) for event in begun] + answers, return_when=asyncio.FIRST_COMPLETED
    )
    assert not any(answer.done() for answer in answers), "too short to be interrupted"
    await asyncio.to_thread(unit.kill, child)
    for prompt, answer in zip(prompts, await asyncio.gather(*answers), strict=True):
        assert answer == small.text(small.greedy(small.encoder.encode(prompt).ids, TOKENS))
    until(lambda: unit.metric("afd_kv_cache_blocks", 'state="used"') == 0, "the end of their pages")


async def test_kill_9_of_the_gateway_ends_its_connections_and_no_other(
    unit: Command, small: Checkpoint
) -> None:
    """Its clients ask again; the unit goes on and has given their pages back."""
    begun = asyncio.Event()
    answer = asyncio.create_task(streamed(unit, "It was", TOKENS, begun))
    await begun.wait()
    before = unit.children()
    await asyncio.to_thread(unit.kill, "gateway")
    with pytest.raises(openai.APIConnectionError):
        await answer
    until(lambda: unit.metric("afd_requests_running") == 0, "the end of its request")
    until(lambda: unit.metric("afd_kv_cache_blocks", 'state="used"') == 0, "the end of its pages")
    until(unit.ready, "the gateway is ready")
    assert await streamed(unit, "It was", 20) == small.text(
        small.greedy(small.encoder.encode("It was").ids, 20)
    )
    after = unit.children()
    assert {name: pid for name, pid in after.items() if name != "gateway"} == {
        name: pid for name, pid in before.items() if name != "gateway"
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_survives_the_command(small: Checkpoint, tmp_path: Path, number: signal.Signals) -> None:
    with serving(small.folder, tmp_path) as command:
        children = command.children()
        assert set(children) == {"attention-0", "expert-0", "coordinator", "gateway"}
        code = command.end(number)
        until(lambda: not any(alive(pid) for pid in children.values()), "its children's end")
        if number is signal.SIGKILL:
            return
        assert code == 0
        assert not list(command.folder.glob("afd-local-*"))


def test_leftovers_of_a_killed_command_go_with_the_next(small: Checkpoint, tmp_path: Path) -> None:
    with serving(small.folder, tmp_path) as command:
        (home,) = command.folder.glob("afd-local-*")
        assert (home / "secret").stat().st_mode & 0o777 == 0o600
        assert home.stat().st_mode & 0o777 == 0o700
        command.end(signal.SIGKILL)
        assert home.exists()
        code = "from afd_runtime.local.folder import remove_leftovers; remove_leftovers()"
        environ = {"PYTHONPATH": f"{ROOT}/runtime", "TMPDIR": str(command.folder)}
        subprocess.run([sys.executable, "-c", code], env=environ, check=True)
        assert not home.exists()
