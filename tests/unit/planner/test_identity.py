"""Golden rows: what FastAFD and ExpertPlex publish, digit by digit."""

from __future__ import annotations

import pytest

from afd_operator.planner.goodput import goodput, online_budget
from afd_operator.planner.identity import (
    StepShares,
    batch_tax,
    boundary_bytes,
    is_hidden,
    latency_ratio_implied,
    offload_bound_dense_and_moe,
    offload_bound_moe,
    speedup,
    speedup_from_shares,
)

# FMHA, dense, MoE percent of the colocated step; M; identity; measured; T_v/T_a; MoE-only and dense+MoE offload.
FASTAFD = {
    "Qwen3-235B 8K": (41.4, 15.7, 43.0, 7, 1.404, 1.41, 1.074, 1.75, 2.42),
    "Qwen3-235B 16K": (42.4, 16.0, 41.6, 11, 1.438, 1.44, 1.047, 1.71, 2.36),
    "MiniMax-M2.5 8K": (43.4, 16.2, 40.5, 17, 1.453, 1.45, 1.024, 1.68, 2.30),
    "MiniMax-M2.5 16K": (48.2, 15.3, 36.4, 17, 1.377, 1.35, 0.953, 1.57, 2.07),
}


@pytest.mark.parametrize("workload", FASTAFD)
def test_identity_speedup_of_the_four_published_rows(workload: str) -> None:
    fmha, dense, moe, m, identity, measured, ratio, moe_bound, all_bound = FASTAFD[workload]
    shares = StepShares.percent(fmha, dense, moe)
    predicted = speedup_from_shares(
        shares, batch_expansion=1.5, attention_nodes=m, expert_nodes=1, microbatches=2
    )
    assert predicted == pytest.approx(identity, abs=1e-3)
    assert predicted == pytest.approx(measured, rel=0.021)
    assert latency_ratio_implied(
        measured, batch_expansion=1.5, attention_nodes=m, expert_nodes=1
    ) == pytest.approx(ratio, abs=5e-4)
    assert round(offload_bound_moe(shares), 2) == moe_bound
    assert round(offload_bound_dense_and_moe(shares), 2) == all_bound


def test_capacity_and_topology_alone_for_qwen_8k() -> None:
    assert speedup(batch_expansion=1.5, attention_nodes=7, expert_nodes=1, latency_ratio=1.0) == 1.3125
    assert batch_tax(17, 1) == pytest.approx(1 - 0.056, abs=1e-3)


def test_shares_must_be_a_decomposition() -> None:
    for parts in ((0, 50, 50), (50, -1, 51), (40, 40, 40)):
        with pytest.raises(ValueError, match="decomposition"):
            StepShares.percent(*parts)


def test_boundary_traffic_is_three_bytes_per_routed_element() -> None:
    dispatch, combine = boundary_bytes(tokens=96, hidden=4096, copies=8)
    assert (dispatch + combine) / (96 * 8 * 4096) == 3


@pytest.mark.parametrize(
    ("t_expert", "margin", "hidden"),
    [(1.0, 0.0, True), (1.0, 0.01, False), (0.9, 0.1, True), (0.0, 0.5, True)],
)
def test_the_placement_rule_keeps_the_margin(t_expert: float, margin: float, hidden: bool) -> None:
    assert is_hidden(1.0, t_expert, margin=margin) is hidden


def test_expertplex_worked_example() -> None:
    """B_p 8, T_p 0.5 s, B_d 64, T_d 0.05 s, 20 output tokens: prefill sustains 16/s, decode 64/s, G = 16."""
    figures = {"prefill_batch": 8, "prefill_time_s": 0.5, "decode_batch": 64, "decode_time_s": 0.05}
    assert goodput(**figures, output_tokens=20) == 16
    assert goodput(**{**figures, "prefill_batch": 1000}, output_tokens=20) == 64


@pytest.mark.parametrize(
    ("tiles", "budget"),
    [(100, 48), (150, 72), (101, 50), (1, 2), (0, 0), (10_000, 130)],
    ids=[
        "as expected",
        "half more",
        "rounded up to a cluster",
        "never below a cluster",
        "no decode work",
        "prefill keeps 2",
    ],
)
def test_online_budget_follows_the_tiles(tiles: float, budget: int) -> None:
    assert online_budget(48, tiles=tiles, expected_tiles=100, cluster=2, most=131) == budget
