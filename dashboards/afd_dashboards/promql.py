"""PromQL over the metrics table. Every query of a board is made here, so the selector stands in one
place, every range is Grafana's rate interval, and a metric is named as the table names it.

Ratios are averaged or recomputed from sums, never summed; quantiles come from summed buckets.
"""

from __future__ import annotations

from afd_unit import metrics
from afd_unit.metrics import Kind, Metric, Owner

SELECTORS = {
    Owner.COORDINATOR: 'deployment="$deployment",unit=~"$unit"',
    Owner.GATEWAY: 'deployment="$deployment"',
}
"""What the board's variables choose. A gateway serves all units of a deployment, so it has no unit."""

RANGE = "[$__rate_interval]"

_TABLE = {metric.name: metric for metric in metrics.ALL}


class WrongMetricError(ValueError):
    """The table has no such metric, or not of the kind that the query needs."""


def gauge(name: str, *matchers: str) -> str:
    """The gauge's series, as scraped."""
    return _select(_metric(name, Kind.GAUGE), "", *matchers)


def rate(name: str, *by: str) -> str:
    """Increase per second of a counter, summed but for `by`."""
    return _summed(f"rate({_select(_metric(name, Kind.COUNTER), '_total')}{RANGE})", by)


def rate_or_zero(name: str) -> str:
    """As `rate` in total, and 0 while nothing has been counted: a counter with labels of its own has no
    series before its first event, and a panel of errors shall say "none", not "no data"."""
    return f"{rate(name)} or vector(0)"


def mean(name: str, *by: str) -> str:
    """Mean of a histogram's observations."""
    count = _summed(f"rate({_histogram(name, '_count')}{RANGE})", by)
    return f"{sum_per_second(name, *by)} / {count}"


def quantile(share: float, name: str, *by: str) -> str:
    """The value that `share` of a histogram's observations do not exceed, interpolated in its bucket."""
    buckets = _summed(f"rate({_histogram(name, '_bucket')}{RANGE})", ("le", *by))
    return f"histogram_quantile({share}, {buckets})"


def sum_per_second(name: str, *by: str) -> str:
    """Growth per second of the sum of a histogram's observations."""
    return _summed(f"rate({_histogram(name, '_sum')}{RANGE})", by)


def aggregate(how: str, expression: str, *by: str) -> str:
    return f"{how} by ({', '.join(by)}) ({expression})" if by else f"{how}({expression})"


def _summed(expression: str, by: tuple[str, ...]) -> str:
    return aggregate("sum", expression, *by)


def _histogram(name: str, suffix: str) -> str:
    return _select(_metric(name, Kind.HISTOGRAM), suffix)


def _metric(name: str, kind: Kind) -> Metric:
    metric = _TABLE.get(name)
    if metric is None or metric.kind is not kind:
        raise WrongMetricError(f"no {kind} {name} in afd_unit.metrics")
    return metric


def _select(metric: Metric, suffix: str, *matchers: str) -> str:
    return f"{metric.name}{suffix}{{{','.join((SELECTORS[metric.owner], *matchers))}}}"
