"""docs/metrics.md from the metrics table."""

from __future__ import annotations

from collections.abc import Iterable

from afd_unit import metrics
from afd_unit.metrics import Kind, Metric

_SECTIONS = (
    (
        "Coordinator",
        metrics.COORDINATOR,
        "One coordinator exports for all workers of its unit; `rank` counts the attention lanes or expert "
        "workers (GPUs) of the unit.",
    ),
    (
        "Gateway",
        metrics.GATEWAY,
        "What clients feel. Each gateway exports its own requests: sum over gateways.",
    ),
    ("Operator", metrics.OPERATOR, "What the operator does and what it sees of the cluster."),
)

_HEAD = """# Metrics

Made from `runtime/afd_unit/metrics.py` by `python -m afd_dashboards`; do not edit.

Names are the exported ones. Seconds, ratios from 0 to 1 (slack may be negative), tokens and rows.
`deployment` is `namespace/name`. A histogram exports `_bucket`, `_sum` and `_count`.
"""


def metrics_page() -> str:
    return "\n".join((_HEAD, *(_section(*section) for section in _SECTIONS)))


def _section(title: str, table: Iterable[Metric], text: str) -> str:
    rows = "\n".join(map(_row, table))
    return f"## {title}\n\n{text}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n{rows}\n"


def _row(metric: Metric) -> str:
    name = metric.name if metric.kind is Kind.HISTOGRAM else metric.series[0]
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    help = metric.help
    if metric.buckets:
        help += f" {len(metric.buckets)} buckets from {metric.buckets[0]:g} s to {metric.buckets[-1]:g} s."
    return f"| `{name}` | {metric.kind} | {labels} | {help} |"
