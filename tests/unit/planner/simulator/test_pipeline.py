"""The step, simulated event by event, against the step formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afd_operator.planner.barrier import expected_maximum
from afd_operator.planner.simulator.pipeline import simulate_step
from afd_operator.planner.step import step_time

T_A, T_C, LAYERS, LANES = 100.0, 5.0, 94, 8


@pytest.mark.parametrize("microbatches", [1, 2, 4])
@pytest.mark.parametrize("t_e", [50.0, 100.0, 150.0], ids=["FFN below attention", "equal", "FFN exposed"])
def test_simulated_step_matches_the_formula(microbatches: int, t_e: float) -> None:
    trace = simulate_step(
        lanes=LANES,
        layers=LAYERS,
        microbatches=microbatches,
        attention=lambda *_: T_A,
        experts=lambda *_: t_e,
        transfer=T_C,
    )
    assert trace.time == pytest.approx(
        step_time(T_A, t_e, T_C, microbatches=microbatches, layers=LAYERS), rel=0.03
    )


@settings(max_examples=60)
@given(st.floats(1, 200), st.floats(1, 200), st.floats(0, 50), st.integers(1, 4), st.integers(1, 30))
def test_for_any_constant_times_the_formula_is_exact(
    a: float, e: float, c: float, m: int, layers: int
) -> None:
    trace = simulate_step(
        lanes=2, layers=layers, microbatches=m, attention=lambda *_: a, experts=lambda *_: e, transfer=c
    )
    assert trace.time == pytest.approx(step_time(a, e, c, microbatches=m, layers=layers), rel=1e-9)


def test_uneven_lanes_cost_what_the_barrier_term_says() -> None:
    """Lanes whose attention differs by 3 % wait for the slowest of 28, at every layer."""
    rng = np.random.default_rng(3)
    times = T_A * (1 + 0.03 * rng.standard_normal((40, 28)))
    simulated = [
        simulate_step(
            lanes=28,
            layers=30,
            microbatches=2,
            attention=lambda n, *_, row=row: float(row[n]),
            experts=lambda *_: 50.0,
            transfer=T_C,
        ).time
        for row in times
    ]
    slowest = T_A * (1 + 0.03 * expected_maximum(28))
    assert np.mean(simulated) == pytest.approx(
        step_time(slowest, 50.0, T_C, microbatches=2, layers=30), rel=0.01
    )


def test_busy_shares_show_who_waits() -> None:
    hidden = simulate_step(
        lanes=4, layers=50, microbatches=2, attention=lambda *_: 100.0, experts=lambda *_: 60.0, transfer=2.0
    )
    exposed = simulate_step(
        lanes=4, layers=50, microbatches=2, attention=lambda *_: 60.0, experts=lambda *_: 100.0, transfer=2.0
    )
    assert hidden.lane_busy > 0.98 > hidden.expert_busy
    assert exposed.expert_busy > 0.98 > exposed.lane_busy
