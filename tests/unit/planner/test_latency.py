"""Fits, footprints and layer times: what must hold for any table, and what these tables say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planner.worlds import GB200, layer, models

from afd_operator.planner.barrier import expected_maximum, stretch
from afd_operator.planner.errors import MissingData
from afd_operator.planner.fit import Component, fit
from afd_operator.planner.hardware import hardware, names
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.model import ModelSpec
from afd_operator.planner.moe import (
    balanced_footprint,
    copies_per_token,
    expected_footprint,
    footprint,
    random_footprint,
)
from afd_operator.planner.profile import InvalidProfile, built_in, read_profile

HEADER = "component,dtype,shape,ep,x,s,latency_us\n"


def test_a_fit_recovers_the_coefficients_it_was_made_from() -> None:
    x, s = (v.ravel().astype(float) for v in np.meshgrid([1, 4, 16, 64], [128, 1024, 8192]))
    found = fit(x, s, 5 + 0.5 * x + 1e-3 * x * s + 2e-8 * x * s * s)
    assert (found.a, found.b, found.g, found.d) == pytest.approx((5, 0.5, 1e-3, 2e-8), rel=1e-6)
    assert found.sigma < 1e-9


@given(st.lists(st.tuples(st.floats(1, 1e3), st.floats(1, 1e4), st.floats(1, 1e5)), min_size=3, max_size=40))
def test_predictions_are_positive_and_never_fall_when_work_grows(
    rows: list[tuple[float, float, float]],
) -> None:
    component = Component.from_rows(*(np.array(v) for v in zip(*rows, strict=True)), "test")
    grid = component(np.array([1.0, 10, 100, 1e3, 1e4])[:, None], np.array([1.0, 100, 1e4])[None, :])
    assert np.isfinite(grid).all()
    assert (grid > 0).all()
    assert (np.diff(grid, axis=0) >= -1e-9 * grid[:-1]).all()
    assert (np.diff(grid, axis=1) >= -1e-9 * grid[:, :-1]).all()


def test_a_component_passes_through_its_table_and_goes_on_parallel_to_the_fit() -> None:
    x = np.array([1.0, 2, 4, 8])
    component = Component.from_rows(x, np.ones(4), np.array([12.0, 20, 44, 80]), "test")
    assert component(x) == pytest.approx([12.0, 20, 44, 80])
    assert component(16.0) / component(8.0) == pytest.approx(component.fit(16.0, 1) / component.fit(8.0, 1))
    assert component.error(16.0) >= component.error(4.0)


def test_footprint_counts_tiles_not_tokens() -> None:
    assert footprint([0, 1, 127, 128, 129]) == 1 + 1 + 1 + 2
    assert footprint([]) == 0


@given(
    st.integers(1, 3000), st.sampled_from([(128, 8), (256, 8), (32, 4), (64, 64)]), st.sampled_from([1, 4, 8])
)
def test_mean_footprint_agrees_with_its_smooth_form(tokens: int, shape: tuple[int, int], ranks: int) -> None:
    experts, top_k = shape
    exact = expected_footprint(tokens, experts=experts, top_k=top_k, ranks=ranks)
    smooth = float(random_footprint(float(tokens), experts=experts, top_k=top_k, ranks=float(ranks))[0])
    assert smooth == pytest.approx(exact, rel=0.05, abs=0.02 * experts / ranks)


def test_even_routing_never_needs_fewer_tiles_than_rows_ask_for() -> None:
    tiles, fill = balanced_footprint(np.array([1.0, 64, 2048, 2049, 10**5]), experts=128, top_k=8, ranks=4.0)
    assert tiles * fill == pytest.approx(np.array([1.0, 64, 2048, 2049, 10**5]) * 2)
    assert (fill <= 128 + 1e-9).all()


@given(st.sampled_from([(128, 8), (256, 8), (32, 4)]), st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_copies_are_between_one_and_the_choices(shape: tuple[int, int], ranks: int) -> None:
    copies = copies_per_token(experts=shape[0], top_k=shape[1], ranks=ranks)
    assert 1 - 1e-12 <= copies <= min(shape[1], ranks) + 1e-12


@given(st.integers(1, 71), st.floats(1, 5000))
def test_more_attention_nodes_never_lower_expert_time(m: int, batch: float) -> None:
    one, more = (float(layer().expert_time_us(4 * n * batch / 2, 4)) for n in (m, m + 1))
    assert 0 < one <= more


def test_expert_time_respects_the_weight_read_floor() -> None:
    """32 experts of 18.9 MB on a rank of Qwen3-235B at EP4: 75 us at 8 TB/s."""
    floor = layer().floor_us(1000, 4)
    assert floor == pytest.approx(32 * 18.9e6 / 8e12 * 1e6, rel=0.01)
    assert layer().expert_time_us(1000.0, 4) > floor


@pytest.mark.parametrize(
    ("name", "context", "batch", "published_ms"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", 8192, 64, 64 / 1779.8e-3),
        ("Qwen/Qwen3-235B-A22B-FP8", 16384, 32, 32 / 935.8e-3),
        ("MiniMaxAI/MiniMax-M2.5", 8192, 48, 48 / 1512.6e-3),
        ("MiniMaxAI/MiniMax-M2.5", 16384, 24, 24 / 735e-3),
    ],
)
def test_colocated_step_from_kernel_tables_alone(
    name: str, context: int, batch: int, published_ms: float
) -> None:
    """vLLM at DP4/EP4 on GB200, as FastAFD's repository reports it; no profile of a step is used."""
    model = layer(name)
    step = float(model.colocated_us(float(batch), context, 4).serial) * model.model.moe_layers + float(
        model.head_us(batch)
    )
    assert step / 1e3 == pytest.approx(published_ms, rel=0.10)


@settings(max_examples=40)
@given(models(), st.integers(1, 2000), st.integers(1, 200_000))
def test_layer_times_of_any_model_are_finite_and_positive(spec: ModelSpec, batch: int, context: int) -> None:
    drawn = LayerModel.of(spec, GB200)
    parts = drawn.colocated_us(float(batch), float(context), 4)
    for value in (parts.attention, parts.dense, parts.experts, parts.exchange, drawn.head_us(batch)):
        assert np.isfinite(value)
        assert value > 0


def test_barrier_grows_with_lanes_and_shrinks_with_batch() -> None:
    assert expected_maximum(1) == pytest.approx(0)
    draws = np.random.default_rng(0).standard_normal((20_000, 28)).max(axis=1).mean()
    assert expected_maximum(28) == pytest.approx(draws, rel=0.01)
    few, many = stretch(28, 4.0, mean=8192, sd=4096), stretch(28, 400.0, mean=8192, sd=4096)
    assert 1 < many < few
    assert stretch(28, 4.0, mean=8192, sd=0.0) == 1


@pytest.mark.parametrize("name", [n for n in names() if hardware(n).profile])
def test_every_packaged_profile_loads_and_has_what_a_gqa_model_needs(name: str) -> None:
    model = layer("Qwen/Qwen3-30B-A3B-FP8", name)
    assert 0 < model.attention_us(32.0, 4096.0) < model.attention_us(64.0, 4096.0)
    assert 0 < model.experts_us(128.0, 4) <= model.experts_us(4096.0, 4)


def test_hardware_without_timings_is_refused() -> None:
    with pytest.raises(MissingData, match="afd profile"):
        LayerModel.of(layer().model, hardware("vera-rubin-nvl72"))
    with pytest.raises(MissingData):
        built_in("tpu")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n", "header"),
        (HEADER, "no rows"),
        (HEADER + "warp,fp8,1x1,1,1,1,1\n", "component 'warp'"),
        (HEADER + "gemm,fp8,1x1,1,1,1\n", "line 2"),
        (HEADER + "gemm,fp8,1x1,1,0,1,1\n", "must be positive"),
        (HEADER + "gemm,fp8,1x1,0,1,1,1\n", "must be positive"),
        (HEADER + "gemm,fp8,1x1,1,1,1,inf\n", "must be positive"),
    ],
)
def test_profiles_that_are_none(text: str, says: str) -> None:
    with pytest.raises(InvalidProfile, match=says):
        read_profile("mine", "me", text)


def test_a_missing_kernel_is_named_with_what_there_is() -> None:
    mine = read_profile("mine", "me", HEADER + "gemm,fp8,128x128,1,1,1,5\ngemm,fp8,128x128,1,64,1,6\n")
    with pytest.raises(MissingData, match="no attention_decode timings in bf16"):
        LayerModel.of(layer().model, GB200, profile=mine).attention_us(1.0, 1.0)
