"""The metrics of one owner as prometheus_client objects. Only what the table names can be exported.

Labels that are the same for the whole process (deployment, unit, model) are given once. Counters and
histograms without further labels exist from the start at zero, so that `rate()` sees the first event.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from afd_unit import metrics
from afd_unit.metrics import Kind, Metric, Owner

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge beside each counter says nothing here


class UnknownMetricError(LookupError):
    """The table has no such metric, or it is of another kind or has other labels."""


class Registry:
    def __init__(self, owner: Owner, constant: Mapping[str, str]) -> None:
        self._registry = CollectorRegistry()
        self._constant = dict(constant)
        self._table = {metric.name: metric for metric in metrics.ALL if metric.owner is owner}
        self._objects = {name: self._make(metric) for name, metric in self._table.items()}
        for name, metric in self._table.items():
            if set(metric.labels) == set(self._constant) and metric.kind is not Kind.GAUGE:
                self._objects[name].labels(**self._constant)

    def _make(self, metric: Metric) -> Counter | Gauge | Histogram:
        labels = list(metric.labels)
        if metric.kind is Kind.COUNTER:
            return Counter(metric.name, metric.help, labels, registry=self._registry)
        if metric.kind is Kind.GAUGE:
            return Gauge(metric.name, metric.help, labels, registry=self._registry)
        return Histogram(metric.name, metric.help, labels, registry=self._registry, buckets=metric.buckets)

    def _child(self, name: str, kind: Kind, labels: Mapping[str, str]) -> Counter | Gauge | Histogram:
        metric = self._table.get(name)
        if metric is None or metric.kind is not kind:
            raise UnknownMetricError(f"no {kind} {name} in the table")
        given = {**self._constant, **labels}
        if set(given) != set(metric.labels):
            raise UnknownMetricError(f"{name} has labels {metric.labels}, not {tuple(given)}")
        return self._objects[name].labels(**given)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        child = self._child(name, Kind.COUNTER, labels)
        assert isinstance(child, Counter)
        child.inc(amount)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        child = self._child(name, Kind.GAUGE, labels)
        assert isinstance(child, Gauge)
        child.set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        child = self._child(name, Kind.HISTOGRAM, labels)
        assert isinstance(child, Histogram)
        child.observe(value)

    def forget(self, name: str) -> None:
        """Drop all series of a gauge whose labels come and go, before it is set anew."""
        self._objects[name].clear()

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
