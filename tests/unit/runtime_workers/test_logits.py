"""The disaggregated runtime computes what `transformers` computes, on the same checkpoint.

Float32, at most 1e-4 apart. Prompts of 1, 17 and 300 tokens go in one batch, so pages, microbatches
and lanes of very unequal size (some empty) take part in each step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.models.random_checkpoint import SHAPES
from tests.unit.runtime_workers.conftest import Oracle, prompts
from tests.unit.runtime_workers.transports import TcpTransport
from tests.unit.runtime_workers.unit_driver import Connect, unit

from afd_runtime.protocol.plan import Phase
from afd_runtime.transport import inprocess

TOLERANCE = 1e-4
RATIOS = ((1, 1), (2, 1), (3, 2))
"""Lanes : expert workers."""
MICROBATCHES = (1, 2, 4)
PROMPTS = prompts(1, 17, 300)


def differences(
    oracle: Oracle, connect: Connect, lanes: int, workers: int, microbatches: int
) -> dict[str, float]:
    """Largest difference of any prompt token's logits, by request."""
    with unit(oracle.folder, connect, lanes=lanes, workers=workers) as running:
        running.add(PROMPTS, 1, microbatches=microbatches)
        logits = running.prefill(microbatches, every_row=True)
    return {
        name: float((logits[name] - oracle.logits(prompt)).abs().max()) for name, prompt in PROMPTS.items()
    }


@pytest.mark.parametrize("microbatches", MICROBATCHES)
@pytest.mark.parametrize(("lanes", "workers"), RATIOS)
@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_logits_of_every_token(
    oracle: Callable[[str], Oracle], shape: str, lanes: int, workers: int, microbatches: int
) -> None:
    found = differences(oracle(shape), inprocess.connect, lanes, workers, microbatches)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("microbatches", MICROBATCHES)
@pytest.mark.parametrize(("lanes", "workers"), RATIOS)
def test_the_same_over_sockets(
    oracle: Callable[[str], Oracle], tcp: TcpTransport, lanes: int, workers: int, microbatches: int
) -> None:
    shape = oracle("top-8 of 13 experts, one key-value head")
    found = differences(shape, tcp.connect, lanes, workers, microbatches)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("shape", SHAPES)
def test_decode_logits(oracle: Callable[[str], Oracle], shape: str) -> None:
    """Five decode steps behind prompts of all lengths: the paged path of one row a sequence."""
    reference = oracle(shape)
    with unit(reference.folder, inprocess.connect, lanes=2, workers=2) as running:
        running.add(PROMPTS, 6, microbatches=2)
        running.prefill(2)
        for _ in range(5):
            outputs = running.decode(2)
        logits = {name: row for output in outputs for name, row in output.logits.items()}
        for name, request in running.requests.items():
            known = request.prompt + request.answer[:-1]
            assert torch.allclose(logits[name][0], reference.logits(known)[-1], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
def test_chunked_prefill_equals_whole(oracle: Callable[[str], Oracle], chunk: int) -> None:
    """Whatever the pieces are to the pages (16 tokens): smaller, equal, larger, across."""
    reference = oracle("plain")
    short = prompts(1, 17, 40)
    with unit(reference.folder, inprocess.connect, lanes=2, workers=2) as running:
        running.add(short, 1, microbatches=2)
        last = running.prefill(2, chunk)
    for name, prompt in short.items():
        assert torch.allclose(last[name][-1], reference.logits(prompt)[-1], atol=TOLERANCE, rtol=0)


def test_stale_pages_cannot_reach_a_result(oracle: Callable[[str], Oracle]) -> None:
    """Fresh pages hold whatever memory held, NaN at worst: no masked place may let it through."""
    reference = oracle("plain")
    with unit(reference.folder, inprocess.connect) as running:
        cache = running.lanes[0].cache
        for layer in range(3):
            cache.layer(layer).keys[: cache.guard_slot] = float("nan")
            cache.layer(layer).values[: cache.guard_slot] = float("nan")
        answers = running.generate(prompts(3, 30, 9), 4, microbatches=2)
    for name, prompt in prompts(3, 30, 9).items():
        assert answers[name] == reference.greedy(prompt, 4)


def test_a_step_without_any_row(oracle: Callable[[str], Oracle]) -> None:
    """All lanes idle: every round still happens, with zero rows everywhere."""
    with unit(oracle("plain").folder, inprocess.connect, lanes=2, workers=2) as running:
        for phase in Phase:
            outputs = running.run(phase, {}, microbatches=2)
            assert [(output.sampled, output.times.rounds) for output in outputs] == [([], 6), ([], 6)]
