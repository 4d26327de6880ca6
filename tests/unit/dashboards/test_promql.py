"""Queries are written over the metrics table, and what cannot be right cannot be written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from afd_dashboards import promql
from afd_dashboards.promql import WrongMetricError
from afd_dashboards.spec import Panel, Query, Unit

UNIT = 'deployment="$deployment",unit=~"$unit"'
ALL = 'deployment="$deployment"'


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (promql.gauge("afd_epoch"), f"afd_epoch{{{UNIT}}}"),
        (
            promql.gauge("afd_ffn_slack_ratio", 'stat="min"'),
            f'afd_ffn_slack_ratio{{{UNIT},stat="min"}}',
        ),
        (
            promql.rate("afd_prompt_tokens"),
            f"sum(rate(afd_prompt_tokens_total{{{ALL}}}[$__rate_interval]))",
        ),
        (
            promql.rate_or_zero("afd_admission_rejections"),
            f"sum(rate(afd_admission_rejections_total{{{UNIT}}}[$__rate_interval])) or vector(0)",
        ),
        (
            promql.quantile(0.95, "afd_step_duration_seconds", "unit"),
            "histogram_quantile(0.95, sum by (le, unit) "
            f"(rate(afd_step_duration_seconds_bucket{{{UNIT}}}[$__rate_interval])))",
        ),
        (
            promql.mean("afd_ffn_time_seconds"),
            f"sum(rate(afd_ffn_time_seconds_sum{{{UNIT}}}[$__rate_interval]))"
            f" / sum(rate(afd_ffn_time_seconds_count{{{UNIT}}}[$__rate_interval]))",
        ),
    ],
)
def test_queries(query: str, text: str) -> None:
    assert query == text


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (promql.gauge, "afd_step_time"),
        (promql.gauge, "afd_step_duration_seconds"),
        (promql.rate, "afd_epoch"),
        (promql.rate, "afd_prompt_tokens_total"),
        (promql.mean, "afd_expert_tokens"),
    ],
)
def test_a_metric_that_the_table_lacks_or_has_as_another_kind(write: Callable[[str], str], name: str) -> None:
    with pytest.raises(WrongMetricError, match=name):
        write(name)


@pytest.mark.parametrize(
    "wrong",
    [{"title": ""}, {"description": ""}, {"queries": ()}, {"columns": 0}, {"columns": 25}],
    ids=str,
)
def test_a_panel_that_says_nothing_cannot_be_made(wrong: dict[str, object]) -> None:
    whole = {
        "title": "Epoch",
        "description": "Number of the member table.",
        "unit": Unit.COUNT,
        "queries": (Query(promql="afd_epoch", legend="epoch"),),
    }
    Panel(**whole)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="panel"):
        Panel(**{**whole, **wrong})  # type: ignore[arg-type]
