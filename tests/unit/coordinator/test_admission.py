"""Who comes in, and where to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.coordinator.world import capacity

from afd_runtime.coordinator import admission
from afd_runtime.coordinator.admission import MAX_RETRY_S, MAX_WAITING, MIN_RETRY_S, Limits
from afd_runtime.coordinator.lanes import Lane
from afd_runtime.coordinator.requests import Request
from afd_runtime.protocol.messages import Submit
from afd_runtime.protocol.plan import Sampling

KNOWN = Limits(capacity_tokens=100, vocab_size=50, eos_token_ids=(0,))


def submit(**changes: Any) -> Submit:
    fields: dict[str, Any] = {
        "request_id": "r",
        "attempt": 0,
        "prompt": [1, 2, 3],
        "sampling": Sampling(),
        "max_new_tokens": 10,
    }
    return Submit(**{**fields, **changes})


def request(tokens: int, most: int, name: str = "r") -> Request:
    return Request.admitted(
        submit(request_id=name, prompt=[1] * tokens, max_new_tokens=most), gateway=b"g", arrival=1, eos=[0]
    )


@pytest.mark.parametrize(
    ("why", "asked", "waiting", "reason", "says"),
    [
        ("fits", submit(), 0, None, ""),
        ("fits exactly", submit(prompt=[1] * 90), 0, None, ""),
        ("one token too many", submit(prompt=[1] * 91), 0, "too_long", "at most 100 fit"),
        ("nothing asked", submit(prompt=[]), 0, "invalid", "no tokens"),
        ("no answer wanted", submit(max_new_tokens=0), 0, "invalid", "at least 1"),
        ("a token beyond the vocabulary", submit(prompt=[50]), 0, "invalid", "token 50"),
        ("a negative token", submit(prompt=[-1]), 0, "invalid", "token -1"),
        ("a committed token that is none", submit(committed=[99]), 0, "invalid", "token 99"),
        ("the queue is full", submit(), MAX_WAITING, "queue_full", "waiting already"),
        ("a replay was let in before", submit(attempt=1), MAX_WAITING, None, ""),
        (
            "a prompt that can never fit is not told to wait",
            submit(prompt=[1] * 91),
            MAX_WAITING,
            "too_long",
            "",
        ),
    ],
)
def test_refusal(why: str, asked: Submit, waiting: int, reason: str | None, says: str) -> None:
    refused = admission.refusal(asked, KNOWN, waiting=waiting, finished_per_s=1.0)
    assert (refused.reason if refused else None) == reason, why
    if refused:
        assert says in refused.text
        assert (refused.retry_after_s is not None) == (reason == "queue_full")


def test_before_the_first_lane_nothing_can_be_judged() -> None:
    refused = admission.refusal(submit(), None, waiting=0, finished_per_s=0.0)
    assert refused is not None
    assert refused.reason == "queue_full"


@pytest.mark.parametrize(
    ("waiting", "pace", "seconds"),
    [(100, 0.0, MIN_RETRY_S), (100, 10.0, 10.0), (1, 10.0, MIN_RETRY_S), (1000, 1.0, MAX_RETRY_S)],
)
def test_the_time_to_come_back_is_the_queues_own(waiting: int, pace: float, seconds: float) -> None:
    assert admission.retry_after_s(waiting, pace) == seconds


def test_the_context_bounds_the_capacity_and_the_largest_lane_does() -> None:
    small, large = capacity(pages=4, page_tokens=4), capacity(pages=10, page_tokens=4)
    assert admission.limits(100, [small, large]).capacity_tokens == 40
    assert admission.limits(30, [small, large]).capacity_tokens == 30


def test_the_least_used_lane_that_fits_takes_it() -> None:
    lanes = [Lane(index, index, capacity(pages=12, page_tokens=4, slots=2)) for index in range(3)]
    lanes[0].reserve(request(8, 8, "a"))
    assert admission.choose_lane(request(4, 4), lanes) is lanes[1]
    lanes[1].reserve(request(20, 20, "b"))
    lanes[2].reserve(request(20, 8, "c"))
    assert admission.choose_lane(request(4, 4), lanes) is lanes[0]
    # Only lane 0 has pages for 32 positions.
    assert admission.choose_lane(request(16, 16), lanes) is lanes[0]
    assert admission.choose_lane(request(20, 20), lanes) is None


def test_a_lane_without_a_free_slot_takes_nobody() -> None:
    lane = Lane(0, 0, capacity(pages=12, page_tokens=4, slots=1))
    lane.reserve(request(2, 2, "a"))
    assert admission.choose_lane(request(1, 1), [lane]) is None
