"""The step formula against its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afd_operator.planner.step import layer_cycle, megascale_step_time, step_time

times = st.floats(1.0, 1e3)
microbatches = st.integers(1, 4)
layers = st.integers(1, 100)


@given(times, times, times, layers)
def test_one_microbatch_is_the_serial_sum(a: float, e: float, c: float, n: int) -> None:
    assert step_time(a, e, c, microbatches=1, layers=n) == pytest.approx(n * (a + e + 2 * c))


@given(times, times, times, microbatches, layers)
def test_a_full_pipeline_is_megascales_formula(a: float, e: float, c: float, m: int, n: int) -> None:
    ours = step_time(a, e, c, microbatches=m, layers=n)
    theirs = megascale_step_time(a, e, c, microbatches=m, layers=n)
    if m * max(a, e) >= a + e + 2 * c:
        assert ours == pytest.approx(theirs)
    else:
        assert ours >= theirs - 1e-9


@given(times, times, times, times, microbatches, layers)
def test_no_term_ever_shortens_the_step(a: float, e: float, c: float, more: float, m: int, n: int) -> None:
    base = step_time(a, e, c, microbatches=m, layers=n)
    for longer in ((a + more, e, c), (a, e + more, c), (a, e, c + more)):
        assert step_time(*longer, microbatches=m, layers=n) >= base


@given(times, times, times, microbatches)
def test_the_cycle_is_bounded_by_each_resource_and_the_loop(a: float, e: float, c: float, m: int) -> None:
    assert layer_cycle(a, e, c, m) == max(m * a, m * e, a + e + 2 * c)
