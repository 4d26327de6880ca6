"""The metric table follows Prometheus' conventions."""

from __future__ import annotations

import re

from afd_unit import metrics
from afd_unit.metrics import Kind


def test_names_are_unique_and_conventional() -> None:
    names = [metric.name for metric in metrics.ALL]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"afd_[a-z0-9_]+", name), name
        assert not name.endswith("_total"), "prometheus_client adds it"


def test_histograms_have_rising_edges_and_others_none() -> None:
    for metric in metrics.ALL:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name


def test_help_is_a_sentence() -> None:
    for metric in metrics.ALL:
        assert metric.help.endswith("."), metric.name
