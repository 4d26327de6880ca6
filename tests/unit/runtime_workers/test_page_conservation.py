"""KV pages and table places are conserved, whatever is begun, run, freed, aborted or refused.

A state machine drives a lane's table through plans as the coordinator may send them (and some that it
must not), against a model that knows only names and lengths.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from afd_runtime.attention.admission import PlanRefused, admission
from afd_runtime.attention.kv_cache import KvCache
from afd_runtime.attention.limits import LaneLimits
from afd_runtime.attention.pages import PageError, PagePool
from afd_runtime.attention.table import RequestTable
from afd_runtime.models.shape import ModelShape
from afd_runtime.protocol.plan import MAX_LEAD, Phase, Sampling, SequenceWork, StepPlan

VOCAB = 50
LIMITS = LaneLimits(kv_pages=12, page_tokens=4, table_slots=3, max_rows=16, context_length=24)
SHAPE = ModelShape(
    layers=1,
    hidden=4,
    vocab=VOCAB,
    kv_heads=1,
    head_dim=2,
    experts=2,
    top_k=1,
    moe_layers=(0,),
    max_position=24,
    eos_token_ids=(),
)


@dataclass
class Known:
    """What the model knows of a request: attempt, tokens with KV, tokens known, by step."""

    attempt: int
    reserve: int
    history: list[tuple[int, int, int]]


class LaneTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RequestTable(LIMITS, KvCache(SHAPE, LIMITS, torch.float32))
        self.known: dict[str, Known] = {}
        self.step = 0

    def try_step(self, phase: Phase, works: list[SequenceWork], free: list[tuple[str, int]]) -> bool:
        """What `Lane.run` does with the table. A refused plan changes nothing."""
        self.step += 1
        plan = StepPlan(epoch=1, step=self.step, phase=phase, bucket=16, microbatches=[works], free=free)
        before = (self.table.held(), self.table.pages.free)
        try:
            todo = admission(plan, self.table, LIMITS, VOCAB)
        except PlanRefused:
            assert (self.table.held(), self.table.pages.free) == before
            return False
        for name in todo.release:
            self.table.release(name)
            del self.known[name]
        for work in todo.admit:
            self.table.admit(work)
        for work in works:
            resident = self.table.find(work.request_id, work.attempt)
            assert resident is not None
            resident.advance(self.step, work, 7 if work.sample else None)
            known = self.known.setdefault(work.request_id, Known(work.attempt, work.reserve, []))
            end = work.start + work.count
            known.history.append((self.step, end, end + work.sample))
        return True

    @rule(
        name=st.sampled_from("abcde"),
        attempt=st.integers(0, 2),
        count=st.integers(1, 10),
        answer=st.integers(1, 16),
        last=st.booleans(),
    )
    def begin(self, name: str, attempt: int, count: int, answer: int, last: bool) -> None:
        held = self.known.get(name)
        work = SequenceWork(
            request_id=name,
            attempt=attempt,
            start=0,
            count=count,
            sample=last,
            tokens=[1] * count,
            reserve=count + answer,
            sampling=Sampling(),
        )
        began = self.try_step(Phase.PREFILL, [work], [])
        assert not (began and held is not None and held.attempt > attempt), "an older attempt cannot begin"

    @rule(name=st.sampled_from("abcde"))
    def decode(self, name: str) -> None:
        known = self.known.get(name)
        start = known.history[-1][2] - 1 if known else 3
        attempt = known.attempt if known else 0
        work = SequenceWork(request_id=name, attempt=attempt, start=max(start, 0), count=1, sample=True)
        ran = self.try_step(Phase.DECODE, [work], [])
        assert known is not None or not ran, "a request that nobody began cannot be decoded"

    @rule(name=st.sampled_from("abcde"), attempt=st.integers(0, 2))
    def free(self, name: str, attempt: int) -> None:
        """Of requests that are not here as well: a repeated free is no error."""
        assert self.try_step(Phase.DECODE, [], [(name, attempt)])

    @rule(back=st.integers(0, MAX_LEAD))
    def abort(self, back: int) -> None:
        committed = max(0, self.step - back)
        for name, known in list(self.known.items()):
            known.history = [entry for entry in known.history if entry[0] <= committed]
            if not known.history:
                del self.known[name]
        self.table.abort(committed)
        self.table.abort(committed)

    @invariant()
    def pages_are_conserved(self) -> None:
        self.table.check_conserved()
        owned = [page for resident in self.table for page in resident.pages]
        assert len(owned) == len(set(owned)), "a page has two owners"

    @invariant()
    def the_table_holds_what_is_known(self) -> None:
        held = {entry.request_id: (entry.attempt, entry.length) for entry in self.table.held()}
        assert held == {name: (known.attempt, known.history[-1][1]) for name, known in self.known.items()}
        assert all(
            len(resident.tokens) == self.known[resident.request_id].history[-1][2] for resident in self.table
        )

    def teardown(self) -> None:
        for name, known in list(self.known.items()):
            assert self.try_step(Phase.DECODE, [], [(name, known.attempt)])
        assert (len(self.table), self.table.pages.free) == (0, LIMITS.kv_pages)


TestLaneTable = LaneTable.TestCase
TestLaneTable.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_pool_gives_all_or_nothing() -> None:
    pool = PagePool(3)
    pool.allocate(2)
    with pytest.raises(PageError, match="2 KV pages asked for, 1 of 3 are free"):
        pool.allocate(2)
    assert pool.free == 1


@pytest.mark.parametrize("pages", [[2], [0, 0], [0, 9]], ids=["not out", "twice", "no such page"])
def test_a_pool_takes_back_only_what_is_out(pages: list[int]) -> None:
    """A double free would give one page to two requests."""
    pool = PagePool(3)
    pool.allocate(2)
    with pytest.raises(PageError, match="given back"):
        pool.release(pages)
    assert pool.free == 1
    with contextlib.suppress(PageError):
        pool.release([0, 1])
    assert pool.free == 3
