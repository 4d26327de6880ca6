"""Plans that a lane refuses: before anything has changed, naming the request and both values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.runtime_workers.test_page_conservation import LIMITS, SHAPE, VOCAB

from afd_runtime.attention.admission import Admission, PlanRefused, admission
from afd_runtime.attention.kv_cache import KvCache
from afd_runtime.attention.limits import LaneLimits, LimitsError, size_lane
from afd_runtime.attention.table import RequestTable
from afd_runtime.protocol.plan import Phase, Sampling, SequenceWork, StepPlan


def begin(name: str, count: int = 4, reserve: int = 8, **changed: Any) -> SequenceWork:
    fields = {"attempt": 0, "start": 0, "sample": True, "tokens": [1] * count, "sampling": Sampling()}
    return SequenceWork(request_id=name, count=count, reserve=reserve, **{**fields, **changed})


def decode(name: str, start: int, attempt: int = 0) -> SequenceWork:
    return SequenceWork(request_id=name, attempt=attempt, start=start, count=1, sample=True)


def plan(*works: SequenceWork, free: list[tuple[str, int]] | None = None, bucket: int = 16) -> StepPlan:
    phase = Phase.DECODE if works and works[0].tokens is None else Phase.PREFILL
    return StepPlan(epoch=1, step=2, phase=phase, bucket=bucket, microbatches=[list(works)], free=free or [])


@pytest.fixture
def table() -> RequestTable:
    """Request `a` is here: attempt 1, four tokens with KV, the fifth sampled, pages for eight."""
    made = RequestTable(LIMITS, KvCache(SHAPE, LIMITS, torch.float32))
    work = begin("a", attempt=1)
    made.admit(work)
    resident = made.find("a", 1)
    assert resident is not None
    resident.advance(1, work, 9)
    return made


REFUSED = (
    ("bucket", plan(bucket=17), "bucket 17, the buffers hold 16"),
    ("unknown request", plan(decode("b", 4)), r"b attempt 0 is not here \(held: attempt None\)"),
    ("another attempt", plan(decode("a", 4, attempt=2)), r"a attempt 2 is not here \(held: attempt 1\)"),
    ("freed by the same plan", plan(decode("a", 4, attempt=1), free=[("a", 1)]), "is not here"),
    ("a gap", plan(decode("a", 5, attempt=1)), "starts at 5, KV is written up to 4"),
    (
        "past the pages",
        plan(begin("a", 6, 0, start=4, attempt=1, sampling=None)),
        "ends at 10, its pages hold 8",
    ),
    ("older attempt begins", plan(begin("a")), "attempt 0 begins, attempt 1 is here"),
    ("first work in the middle", plan(begin("b", start=4)), "starts at 4, not 0"),
    ("more tokens than reserved", plan(begin("b", 9, 8)), "9 tokens, 8 positions reserved"),
    ("beyond the context", plan(begin("b", 4, 25)), "25 positions reserved, the context length is 24"),
    ("token outside the vocabulary", plan(begin("b", 1, tokens=[VOCAB])), "token 50, the vocabulary has 50"),
    ("negative token", plan(begin("b", 1, tokens=[-1])), "token -1"),
    ("no pages left", plan(begin("b", 4, 24), begin("c", 4, 24)), "12 KV pages to reserve, 10 are free"),
    ("no places left", plan(begin("b", 1, 4), begin("c", 1, 4), begin("d", 1, 4)), "3 requests .* 2 places"),
)


@pytest.mark.parametrize(("asked", "text"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(table: RequestTable, asked: StepPlan, text: str) -> None:
    with pytest.raises(PlanRefused, match=text):
        admission(asked, table, LIMITS, VOCAB)


def test_a_newer_attempt_takes_the_place_of_the_old_one(table: RequestTable) -> None:
    work = begin("a", attempt=2)
    assert admission(plan(work), table, LIMITS, VOCAB) == Admission(["a"], [work])


def test_a_first_work_that_is_repeated_begins_anew(table: RequestTable) -> None:
    """After an abort the coordinator may send the same first work again."""
    work = begin("a", attempt=1)
    assert admission(plan(work), table, LIMITS, VOCAB) == Admission(["a"], [work])


def test_pages_that_the_plan_frees_can_be_reserved_by_it(table: RequestTable) -> None:
    works = [begin("b", 4, 24), begin("c", 4, 24)]
    assert admission(plan(*works, free=[("a", 1)]), table, LIMITS, VOCAB) == Admission(["a"], works)


def test_frees_of_requests_that_are_gone_are_no_error(table: RequestTable) -> None:
    assert admission(plan(free=[("x", 0), ("a", 0)]), table, LIMITS, VOCAB) == Admission([], [])


SIZED = (
    ("by memory", {"kv_bytes": 16 * 4 * 10}, 10),
    ("by what a full table can use", {"kv_bytes": 1 << 30}, 3 * 6),
)


@pytest.mark.parametrize(("given", "pages"), [case[1:] for case in SIZED], ids=[case[0] for case in SIZED])
def test_page_pool_size(given: dict[str, int], pages: int) -> None:
    """One token of SHAPE takes 2 x 1 x 2 x 4 = 16 bytes, a page 4 tokens."""
    sized = size_lane(
        SHAPE, context_length=24, element_bytes=4, page_tokens=4, table_slots=3, max_rows=16, **given
    )
    assert sized.kv_pages == pages


@pytest.mark.parametrize(
    ("context_length", "kv_bytes", "text"),
    [
        (24, 16 * 4 * 5, "5 KV pages hold 20 tokens, fewer than the context length of 24"),
        (25, 1 << 30, "context length 25, the checkpoint was made for 24 positions"),
    ],
)
def test_a_lane_that_could_not_hold_one_request(context_length: int, kv_bytes: int, text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        size_lane(
            SHAPE,
            context_length=context_length,
            kv_bytes=kv_bytes,
            element_bytes=4,
            page_tokens=4,
            table_slots=3,
            max_rows=16,
        )


def test_limits_must_be_positive() -> None:
    with pytest.raises(LimitsError, match="max_rows is 0"):
        LaneLimits(kv_pages=1, page_tokens=4, table_slots=1, max_rows=0, context_length=4)
