"""Every metric the project publishes: name, type, labels, meaning. The registry that processes
export from, boards and rules are checked against, and the docs list.

Names follow Prometheus: prefix `afd_`, base units, no colon. Counters are named without `_total`
here, as prometheus_client wants it; they are exposed with it. Runtime metrics all carry `deployment`
("namespace/name"), `unit` and `model_name`; ranks are labels of one exporter, never many exporters.

Sources: names and edges are those of the project's observability study; TTFT and end-to-end edges
are vLLM's, inter-token edges are dense from 2 to 60 ms because a 30-50 ms target is decided there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Owner(StrEnum):
    """The process that exports a metric."""

    COORDINATOR = "coordinator"
    GATEWAY = "gateway"
    OPERATOR = "operator"


@dataclass(frozen=True, kw_only=True)
class Metric:
    name: str
    kind: Kind
    owner: Owner
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names a query may use."""
        match self.kind:
            case Kind.COUNTER:
                return (f"{self.name}_total",)
            case Kind.GAUGE:
                return (self.name,)
            case Kind.HISTOGRAM:
                return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")


RUNTIME_LABELS = ("deployment", "unit", "model_name")
GATEWAY_LABELS = ("deployment", "model_name")

STEP_EDGES = tuple(n / 1000 for n in (*range(5, 55, 5), 60, 80, 100, 150, 200, 300, 500, 1000))
LAYER_EDGES = (20e-6, 50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 700e-6, 1e-3, 2e-3, 3e-3, 5e-3, 10e-3)
TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_EDGES = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.06,
    0.08, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0,
)  # fmt: skip
E2E_EDGES = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
RECONCILE_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def _coordinator(name: str, kind: Kind, help: str, *labels: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(
        name=name,
        kind=kind,
        owner=Owner.COORDINATOR,
        help=help,
        labels=(*RUNTIME_LABELS, *labels),
        buckets=buckets,
    )


def _gateway(name: str, kind: Kind, help: str, *labels: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(
        name=name,
        kind=kind,
        owner=Owner.GATEWAY,
        help=help,
        labels=(*GATEWAY_LABELS, *labels),
        buckets=buckets,
    )


def _operator(name: str, kind: Kind, help: str, *labels: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(name=name, kind=kind, owner=Owner.OPERATOR, help=help, labels=labels, buckets=buckets)


C, G, H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

COORDINATOR = (
    _coordinator("afd_step_duration_seconds", H, "Wall time of one step.", "phase", buckets=STEP_EDGES),
    _coordinator(
        "afd_attention_time_seconds", H, "T_a: attention-side time of one layer and microbatch, mean over a step.",
        "phase", buckets=LAYER_EDGES,
    ),
    _coordinator(
        "afd_ffn_time_seconds", H, "T_e: expert-side time of one layer and microbatch, mean over a step.",
        "phase", buckets=LAYER_EDGES,
    ),
    _coordinator(
        "afd_transfer_time_seconds", H, "T_c: one-way transfer time of one layer and microbatch, mean over a step.",
        "direction", buckets=LAYER_EDGES,
    ),
    _coordinator("afd_ffn_slack_ratio", G, "(T_a - T_e) / T_a over the reporting window.", "stat"),
    _coordinator("afd_ffn_exposed_seconds", C, "Time that lanes waited for experts beyond their own work."),
    _coordinator("afd_microbatches", G, "Microbatches in use."),
    _coordinator("afd_pending_steps", G, "Steps issued and not yet committed."),
    _coordinator("afd_expert_tokens", C, "Routed token rows per expert worker.", "rank"),
    _coordinator("afd_kv_cache_usage_ratio", G, "Used share of a lane's KV pages, 0 to 1.", "rank"),
    _coordinator("afd_kv_cache_blocks", G, "KV pages of a lane.", "rank", "state"),
    _coordinator("afd_requests_running", G, "Requests in execution on a lane.", "rank"),
    _coordinator("afd_requests_waiting", G, "Requests admitted and not yet running.", "reason"),
    _coordinator("afd_admission_rejections", C, "Requests refused.", "reason"),
    _coordinator("afd_requests_replayed", C, "Requests run again after the loss of their lane."),
    _coordinator("afd_epoch", G, "Number of the member table in force."),
    _coordinator("afd_worker_ready", G, "1 while the worker is in the member table.", "role", "rank"),
    _coordinator(
        "afd_topology_info", G, "Constant 1.", "attention_nodes", "ffn_nodes", "gpus_per_node", "nvlink_domain"
    ),
    _coordinator("afd_messages_dropped", C, "Messages of another epoch or incarnation, or unreadable.", "reason"),
)  # fmt: skip

GATEWAY = (
    _gateway("afd_requests_finished", C, "Completions.", "finished_reason"),
    _gateway("afd_prompt_tokens", C, "Prompt tokens."),
    _gateway("afd_generation_tokens", C, "Output tokens."),
    _gateway("afd_time_to_first_token_seconds", H, "Request received to first token.", buckets=TTFT_EDGES),
    _gateway("afd_inter_token_latency_seconds", H, "Between two tokens of a request.", buckets=ITL_EDGES),
    _gateway(
        "afd_request_time_per_output_token_seconds", H, "(finish - first token) / (tokens - 1) of a request.",
        buckets=ITL_EDGES,
    ),
    _gateway("afd_e2e_request_latency_seconds", H, "Request received to last token.", buckets=E2E_EDGES),
    _gateway("afd_gateway_requests", C, "HTTP requests answered.", "path", "code"),
)  # fmt: skip

OPERATOR = (
    _operator("afd_operator_reconcile", C, "Reconciles by result.", "result"),
    _operator(
        "afd_operator_reconcile_duration_seconds", H, "Duration of a reconcile.", buckets=RECONCILE_EDGES
    ),
    _operator("afd_operator_reconcile_errors", C, "Reconciles that failed.", "error_type"),
    _operator("afd_operator_workqueue_depth", G, "Keys that wait for a reconcile."),
    _operator(
        "afd_operator_last_api_success_timestamp_seconds", G, "Last successful call of the API server."
    ),
    _operator("afd_operator_leader", G, "1 while this process holds the operator's Lease."),
    _operator("afd_operator_deployments", G, "AFDDeployments by state.", "state"),
    _operator("afd_operator_nodes", G, "Nodes of a unit.", "deployment", "role", "state"),
    _operator("afd_operator_nvlink_domain_nodes", G, "Nodes of an NVLink domain.", "nvlink_domain", "state"),
)

ALL: tuple[Metric, ...] = (*COORDINATOR, *GATEWAY, *OPERATOR)
"""In the order of the docs."""
