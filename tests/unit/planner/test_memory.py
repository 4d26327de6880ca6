"""Batches that fit, against FastAFD's resident batches and as invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.worlds import DECODE_RULES, GB200, MINIMAX, QWEN, bigger, models

from afd_operator.planner.memory import (
    MemoryRules,
    attention_kv_bytes,
    batch_that_fits,
    colocated_kv_bytes,
    expert_buffers,
    expert_free_bytes,
)
from afd_operator.planner.model import ModelSpec


@pytest.mark.parametrize(
    ("spec", "context", "colocated", "attention"),
    [(QWEN, 8192, 64, 96), (QWEN, 16384, 32, 48), (MINIMAX, 8192, 48, 72), (MINIMAX, 16384, 24, 36)],
    ids=lambda v: getattr(v, "name", v),
)
def test_fastafds_resident_batches_fit_and_leave_little_room(
    spec: ModelSpec, context: int, colocated: int, attention: int
) -> None:
    beside_experts = batch_that_fits(
        spec, colocated_kv_bytes(spec, GB200, 4, DECODE_RULES), context, DECODE_RULES
    )
    alone = batch_that_fits(spec, attention_kv_bytes(spec, GB200, 4, DECODE_RULES), context, DECODE_RULES)
    assert colocated <= beside_experts <= 1.1 * colocated
    assert attention <= alone <= 1.1 * attention


@given(models(), st.floats(1.0, 4.0), st.sampled_from([4, 8, 16, 32]), st.integers(1, 10**6))
def test_more_hbm_never_lowers_the_batch(spec: ModelSpec, factor: float, ep: int, context: int) -> None:
    rules = MemoryRules()
    for room in (
        lambda hw: colocated_kv_bytes(spec, hw, ep, rules),
        lambda hw: attention_kv_bytes(spec, hw, ep, rules),
    ):
        small, large = (
            batch_that_fits(spec, room(hw), context, rules) for hw in (GB200, bigger(GB200, factor))
        )
        assert 0 <= small <= large


@given(models(), st.sampled_from([4, 8, 16]), st.integers(1, 10**6))
def test_taking_the_experts_away_never_lowers_the_batch(spec: ModelSpec, ep: int, context: int) -> None:
    rules = MemoryRules()
    beside = batch_that_fits(spec, colocated_kv_bytes(spec, GB200, ep, rules), context, rules)
    assert batch_that_fits(spec, attention_kv_bytes(spec, GB200, ep, rules), context, rules) >= beside


@given(models(), st.integers(1, 5 * 10**5))
def test_a_longer_context_never_raises_the_batch(spec: ModelSpec, context: int) -> None:
    rules = MemoryRules()
    kv = attention_kv_bytes(spec, GB200, 4, rules)
    assert batch_that_fits(spec, kv, 2 * context, rules) <= batch_that_fits(spec, kv, context, rules)


def test_slots_hold_the_worst_case_of_routing() -> None:
    """68 lanes of 8192 tokens that all choose one expert rank: one FP8 row in, one BF16 row out, each."""
    assert expert_buffers(QWEN, 68, MemoryRules()) == 68 * 8192 * 4096 * 3
    assert expert_free_bytes(QWEN, GB200, 68, 4, MemoryRules()) > 0


def test_fp8_kv_doubles_the_batch() -> None:
    kv = attention_kv_bytes(QWEN, GB200, 4, DECODE_RULES)
    half = MemoryRules(kv_dtype="fp8", prefill_tokens=512)
    assert batch_that_fits(QWEN, kv, 8192, half) == pytest.approx(
        2 * batch_that_fits(QWEN, kv, 8192, DECODE_RULES), abs=1
    )
