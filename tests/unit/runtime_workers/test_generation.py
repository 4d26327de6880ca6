"""Whole answers: prefill and decode over lanes give the tokens that `transformers` gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.runtime_workers.conftest import Oracle, prompts
from tests.unit.runtime_workers.unit_driver import Connect, Unit, unit

from afd_runtime.protocol.plan import Phase, Sampling
from afd_runtime.transport import inprocess
from afd_runtime.transport.errors import EndpointClosed

ANSWER = 12
LENGTHS = tuple(1 + (7 * number) % 45 for number in range(32))
"""32 prompts of 1 to 45 tokens, in no order."""


@pytest.mark.timeout(300)
def test_32_concurrent_greedy_requests(oracle: Callable[[str], Oracle], connect: Connect) -> None:
    reference = oracle("tied embeddings, head width is not hidden / heads")
    asked = prompts(*LENGTHS)
    with unit(reference.folder, connect, lanes=3, workers=2) as running:
        answers = running.generate(asked, ANSWER, microbatches=2)
    assert answers == {name: reference.greedy(prompt, ANSWER) for name, prompt in asked.items()}


@pytest.mark.parametrize(
    "how", [Sampling(temperature=0.8, seed=3), Sampling(temperature=1.5, top_k=20, top_p=0.9)]
)
def test_sampled_tokens_do_not_depend_on_the_batch(oracle: Callable[[str], Oracle], how: Sampling) -> None:
    """The same requests alone on one lane, and together on three: the same tokens."""
    folder, asked = oracle("plain").folder, prompts(4, 33, 12, 20)
    with unit(folder, inprocess.connect, lanes=3, workers=2) as running:
        together = running.generate(asked, 8, microbatches=2, sampling=how)
    for name, prompt in asked.items():
        with unit(folder, inprocess.connect) as running:
            alone = running.generate({name: prompt}, 8, sampling=how, chunk=7)
        assert alone[name] == together[name]


def test_replay_on_another_lane_gives_the_same_tokens(oracle: Callable[[str], Oracle]) -> None:
    """Prompt and committed tokens are prefilled elsewhere: sampling goes on as if nothing had been."""
    how = Sampling(temperature=1.0, seed=11)
    folder, asked = oracle("plain").folder, prompts(9)
    with unit(folder, inprocess.connect) as running:
        whole = running.generate(asked, 10, sampling=how)["request-0"]
    replayed = {"again": asked["request-0"] + whole[:4]}
    with unit(folder, inprocess.connect, lanes=2) as running:
        rest = running.generate(replayed, 6, sampling=how)["again"]
    assert whole == whole[:4] + rest


def committed_state(running: Unit) -> list[tuple[str, int]]:
    return sorted((held.request_id, held.length) for lane in running.lanes for held in lane.held())


def test_an_aborted_step_that_is_run_again_gives_the_same_tokens(
    oracle: Callable[[str], Oracle], connect: Connect
) -> None:
    reference, asked = oracle("plain"), prompts(5, 20, 31)
    with unit(reference.folder, connect, lanes=2, workers=2) as running:
        running.add(asked, ANSWER)
        running.prefill()
        for step in range(ANSWER - 1):
            if step % 3 == 1:
                before = committed_state(running)
                answers = {name: list(request.answer) for name, request in running.requests.items()}
                running.decode()
                running.new_epoch(committed_step=running.steps - 1)
                assert committed_state(running) == before
                for name, request in running.requests.items():
                    request.answer = answers[name]
            running.decode()
        assert {name: request.answer for name, request in running.requests.items()} == {
            name: reference.greedy(prompt, ANSWER) for name, prompt in asked.items()
        }


def test_a_request_born_in_an_aborted_step_is_gone(oracle: Callable[[str], Oracle]) -> None:
    """Its pages as well: the coordinator begins it anew."""
    with unit(oracle("plain").folder, inprocess.connect) as running:
        running.add(prompts(20), 4)
        running.prefill()
        running.new_epoch(committed_step=0)
        assert committed_state(running) == []
        assert running.lanes[0].table.pages.free == 200
        running.requests["request-0"].prefilled = 0
        running.requests["request-0"].answer.clear()
        running.prefill()
        assert committed_state(running) == [("request-0", 20)]


def test_three_steps_back_at_once(oracle: Callable[[str], Oracle]) -> None:
    """As many as may be out: lengths and known tokens are those of the committed step."""
    reference, asked = oracle("plain"), prompts(6)
    with unit(reference.folder, inprocess.connect) as running:
        running.add(asked, 9)
        running.prefill()
        for _ in range(5):
            running.decode()
        running.new_epoch(committed_step=running.steps - 3)
        request = running.requests["request-0"]
        del request.answer[-3:]
        for _ in range(6):
            running.decode()
        assert request.answer == reference.greedy(asked["request-0"], 9)


def test_at_rest_every_page_is_free(oracle: Callable[[str], Oracle]) -> None:
    with unit(oracle("plain").folder, inprocess.connect, lanes=2) as running:
        running.generate(prompts(3, 50, 17), 5)
        running.free_all()
        assert [(len(lane.table), lane.table.pages.free) for lane in running.lanes] == [(0, 200), (0, 200)]


def test_closing_the_endpoint_ends_a_step_that_waits(
    oracle: Callable[[str], Oracle], connect: Connect
) -> None:
    """Abort in the middle of a step: the lane stops waiting at once and can start over."""
    with unit(oracle("plain").folder, connect, lanes=2, workers=1) as running:
        running.add(prompts(8, 8), 3)
        works = {name: running.prefill_work(name) for name in running.requests}
        first, _ = running.plans(Phase.PREFILL, works, 1)
        waiting = running.submit(0, first)  # the other lane never delivers
        running.lanes[0].attach(None)
        with pytest.raises(EndpointClosed):
            waiting.result(10)
        running.new_epoch(committed_step=0)
        running.prefill()
        assert all(len(request.answer) == 1 for request in running.requests.values())
