"""The operator's metrics: exactly those of `afd_unit.metrics.OPERATOR`, in a registry of their own."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from afd_unit import metrics
from afd_unit.metrics import Kind

_KINDS = {Kind.COUNTER: Counter, Kind.GAUGE: Gauge}


class Metrics:
    """One instance a process. Methods are named for what happened, not for what is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._by_name: dict[str, Counter | Gauge | Histogram] = {}
        for metric in metrics.OPERATOR:
            if metric.kind is Kind.HISTOGRAM:
                self._by_name[metric.name] = Histogram(
                    metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
                )
            else:
                self._by_name[metric.name] = _KINDS[metric.kind](
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
        self._reconciled = self._counter("afd_operator_reconcile")
        self._errors = self._counter("afd_operator_reconcile_errors")
        self._duration = self._by_name["afd_operator_reconcile_duration_seconds"]
        self._depth = self._gauge("afd_operator_workqueue_depth")
        self._last_success = self._gauge("afd_operator_last_api_success_timestamp_seconds")
        self._leader = self._gauge("afd_operator_leader")
        self._deployments = self._gauge("afd_operator_deployments")
        self._nodes = self._gauge("afd_operator_nodes")
        self._domains = self._gauge("afd_operator_nvlink_domain_nodes")
        self.last_success = 0.0
        """When the API server last answered, on the monotonic clock; 0.0 if never."""

    def api_answered(self) -> None:
        self.last_success = time.monotonic()
        self._last_success.set_to_current_time()

    def reconciled(self, seconds: float, error: str | None) -> None:
        """`error` is the kind of what went wrong, None if nothing did."""
        self._reconciled.labels("error" if error else "success").inc()
        if error:
            self._errors.labels(error).inc()
        assert isinstance(self._duration, Histogram)
        self._duration.observe(seconds)

    def leads(self, leading: bool) -> None:
        self._leader.set(int(leading))

    def depth_from(self, depth: object) -> None:
        """`depth` is called at each scrape."""
        self._depth.set_function(depth)  # type: ignore[arg-type]

    def deployments(self, states: Iterable[str]) -> None:
        """The state of every deployment, in any order."""
        self._deployments.clear()
        for state in states:
            self._deployments.labels(state).inc()

    def nodes(self, deployment: str, counts: Iterable[tuple[str, str, int]]) -> None:
        """Nodes of a deployment's units as (role, state, count)."""
        for role, state, count in counts:
            self._nodes.labels(deployment, role, state).set(count)

    def forget(self, deployment: str) -> None:
        """The mirror image of `nodes`, when a deployment is gone."""
        self._nodes.remove_by_labels({"deployment": deployment})

    def domains(self, counts: Iterable[tuple[str, str, int]]) -> None:
        """Nodes of every domain as (domain, state, count)."""
        self._domains.clear()
        for domain, state, count in counts:
            self._domains.labels(domain, state).set(count)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str) -> Counter:
        found = self._by_name[name]
        assert isinstance(found, Counter)
        return found

    def _gauge(self, name: str) -> Gauge:
        found = self._by_name[name]
        assert isinstance(found, Gauge)
        return found
