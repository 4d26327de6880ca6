"""Only what the table names can be exported, and all of it as Prometheus wants it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from afd_runtime.metrics.gateway import GatewayMetrics
from afd_runtime.metrics.registry import Registry, UnknownMetricError
from afd_unit import metrics
from afd_unit.metrics import Owner

CONSTANT = {"deployment": "d", "unit": "0", "model_name": "m"}


def coordinator() -> Registry:
    return Registry(Owner.COORDINATOR, CONSTANT)


@pytest.mark.parametrize(
    ("why", "use"),
    [
        ("no such metric", lambda r: r.gauge("afd_nothing", 1)),
        ("another owner's", lambda r: r.count("afd_generation_tokens")),
        ("another kind", lambda r: r.count("afd_epoch")),
        ("a label too few", lambda r: r.gauge("afd_kv_cache_blocks", 1, rank="0")),
        ("a label too many", lambda r: r.gauge("afd_epoch", 1, rank="0")),
        ("an unknown label", lambda r: r.gauge("afd_requests_running", 1, lane="0")),
    ],
)
def test_what_the_table_does_not_have_is_an_error(why: str, use: Callable[[Registry], None]) -> None:
    with pytest.raises(UnknownMetricError):
        use(coordinator())


def test_counters_begin_at_zero_so_that_rates_see_the_first_event() -> None:
    text = coordinator().exposition().decode()
    assert 'afd_requests_replayed_total{deployment="d",model_name="m",unit="0"} 0.0' in text
    assert "_created" not in text


def test_the_exposition_is_the_table() -> None:
    families = {family.name for family in text_string_to_metric_families(coordinator().exposition().decode())}
    assert families == {metric.name for metric in metrics.COORDINATOR}


def test_forgotten_series_are_gone() -> None:
    registry = coordinator()
    registry.gauge("afd_requests_running", 1, rank="0")
    registry.forget("afd_requests_running")
    registry.gauge("afd_requests_running", 1, rank="1")
    text = registry.exposition().decode()
    assert 'rank="0"' not in text
    assert 'rank="1"' in text


def sample(made: GatewayMetrics, name: str) -> float:
    families = text_string_to_metric_families(made.exposition().decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def test_the_times_of_one_answer() -> None:
    now_s = 100.0
    made = GatewayMetrics(deployment="d", model_id="m")
    times = made.answer(now_s, lambda: now_s)
    now_s += 2.0
    times.tokens(1)
    now_s += 0.3
    times.tokens(3)
    now_s += 0.1
    times.tokens(1)
    times.finished("length")
    assert sample(made, "afd_time_to_first_token_seconds_sum") == pytest.approx(2.0)
    # Three tokens that came together took a third of the time each.
    assert sample(made, "afd_inter_token_latency_seconds_count") == 4
    assert sample(made, "afd_inter_token_latency_seconds_sum") == pytest.approx(0.4)
    assert sample(made, "afd_request_time_per_output_token_seconds_sum") == pytest.approx(0.1)
    assert sample(made, "afd_e2e_request_latency_seconds_sum") == pytest.approx(2.4)
    assert sample(made, "afd_generation_tokens_total") == 5


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_did_not_end_by_itself_has_no_latency(reason: str) -> None:
    made = GatewayMetrics(deployment="d", model_id="m")
    times = made.answer(0.0, lambda: 1.0)
    times.tokens(2)
    times.finished(reason)
    assert sample(made, "afd_e2e_request_latency_seconds_count") == 0
    assert sample(made, "afd_requests_finished_total") == 1
