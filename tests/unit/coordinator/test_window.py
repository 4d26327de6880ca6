"""What is said of the last minute."""

from __future__ import annotations

import msgspec
import pytest

from afd_runtime.coordinator.window import WINDOW_S, Measuring, StepMeasured, Window
from afd_runtime.protocol.messages import StepTimes
from afd_runtime.protocol.plan import Phase

LANE = StepTimes(compute_us=800, transfer_us=100, dispatch_us=40, waited_us=60, step_us=1000, rounds=8)
EXPERT = StepTimes(compute_us=400, rounds=8, rows=24)


def measured(
    attention_s: float, ffn_s: float, phase: Phase = Phase.DECODE, duration_s: float = 0.1
) -> StepMeasured:
    return StepMeasured(
        phase=phase,
        duration_s=duration_s,
        attention_s=attention_s,
        ffn_s=ffn_s,
        dispatch_s=0.0,
        combine_s=0.0,
        exposed_s=0.0,
        rows={},
    )


def test_times_of_a_round_are_means_over_parties_and_rounds() -> None:
    measuring = Measuring(experts=2)
    slower = msgspec.structs.replace(LANE, compute_us=1600, waited_us=140)
    assert measuring.expert(1, 0, EXPERT) is None
    assert measuring.committed(1, Phase.DECODE, 0.25, [LANE, slower]) is None
    step = measuring.expert(1, 1, EXPERT)
    assert step is not None
    assert step.attention_s == pytest.approx(150e-6)
    assert step.ffn_s == pytest.approx(50e-6)
    assert step.dispatch_s == pytest.approx(5e-6)
    assert step.combine_s == pytest.approx(7.5e-6)
    assert step.exposed_s == pytest.approx(100e-6)
    assert step.rows == {0: 24, 1: 24}


def test_a_step_whose_experts_never_answer_is_forgotten() -> None:
    measuring = Measuring(experts=1)
    for step in range(1000):
        assert measuring.committed(step, Phase.DECODE, 0.1, [LANE]) is None
    assert measuring.expert(0, 0, EXPERT) is None
    assert measuring.expert(999, 0, EXPERT) is not None


def test_slack_is_of_decode_steps_mean_by_time_and_extremes_by_step() -> None:
    window = Window()
    for ffn_s in (0.5, 0.9, 1.2):
        window.step(0.0, measured(1.0, ffn_s))
    window.step(0.0, measured(1.0, 9.0, Phase.PREFILL))
    slack = window.slack(1.0)
    assert slack is not None
    assert slack.mean == pytest.approx(1 - 2.6 / 3)
    assert slack.minimum == pytest.approx(-0.2)
    assert slack.p05 == pytest.approx(-0.2)


def test_before_anything_was_measured_nothing_is_claimed() -> None:
    window = Window()
    assert (window.slack(0.0), window.step_time_s(0.0), window.tokens_per_s(0.0)) == (None, None, None)
    assert window.finished_per_s(0.0) == 0.0


def test_what_is_older_than_the_window_is_not_the_present() -> None:
    window = Window()
    window.step(0.0, measured(1.0, 0.5, duration_s=9.0))
    window.commit(0.0, 50, 1)
    window.step(WINDOW_S, measured(1.0, 0.5, duration_s=1.0))
    window.commit(WINDOW_S, 10, 1)
    late = WINDOW_S + 2
    assert window.step_time_s(late) == pytest.approx(1.0)
    assert window.tokens_per_s(late) == pytest.approx(5.0)
    assert window.finished_per_s(late) == pytest.approx(0.5)
