"""What the coordinator exports: events as they happen, state when it is scraped.

One process exports for all workers of its unit, with a `rank` label; a worker exports nothing, so
nothing is counted twice and a dead worker leaves no stale series.
"""

from __future__ import annotations

from afd_runtime.coordinator.core import Coordinator
from afd_runtime.coordinator.window import StepMeasured
from afd_runtime.metrics.registry import Registry
from afd_unit.metrics import Owner
from afd_unit.report import UnitState
from afd_unit.unitfile import UnitFile


class CoordinatorMetrics:
    """The core's observer."""

    def __init__(self, unit: UnitFile) -> None:
        self._unit = unit
        self._registry = Registry(
            Owner.COORDINATOR,
            {"deployment": unit.deployment, "unit": str(unit.unit), "model_name": unit.model.id},
        )

    # --- events

    def step(self, step: StepMeasured) -> None:
        metrics, phase = self._registry, step.phase.value
        metrics.observe("afd_step_duration_seconds", step.duration_s, phase=phase)
        metrics.observe("afd_attention_time_seconds", step.attention_s, phase=phase)
        metrics.observe("afd_ffn_time_seconds", step.ffn_s, phase=phase)
        metrics.observe("afd_transfer_time_seconds", step.dispatch_s, direction="dispatch")
        metrics.observe("afd_transfer_time_seconds", step.combine_s, direction="combine")
        metrics.count("afd_ffn_exposed_seconds", step.exposed_s)
        for rank, rows in step.rows.items():
            metrics.count("afd_expert_tokens", rows, rank=str(rank))

    def rejected(self, reason: str) -> None:
        self._registry.count("afd_admission_rejections", reason=reason)

    def replayed(self, requests: int) -> None:
        self._registry.count("afd_requests_replayed", requests)

    def dropped(self, reason: str) -> None:
        self._registry.count("afd_messages_dropped", reason=reason)

    # --- state

    def exposition(self, core: Coordinator, now_s: float) -> bytes:
        self._unit_state(core, now_s)
        self._lanes(core)
        self._workers(core)
        return self._registry.exposition()

    def _unit_state(self, core: Coordinator, now_s: float) -> None:
        metrics, unit = self._registry, self._unit
        metrics.gauge("afd_epoch", core.epochs.number)
        metrics.gauge("afd_pending_steps", len(core.work.pending))
        metrics.gauge("afd_microbatches", unit.microbatches)
        serving = core.epochs.state is UnitState.SERVING
        waiting = len(core.work.waiting)
        metrics.gauge("afd_requests_waiting", waiting if serving else 0, reason="capacity")
        metrics.gauge("afd_requests_waiting", 0 if serving else waiting, reason="paused")
        slack = core.window.slack(now_s)
        metrics.forget("afd_ffn_slack_ratio")
        if slack is not None:
            metrics.gauge("afd_ffn_slack_ratio", slack.mean, stat="mean")
            metrics.gauge("afd_ffn_slack_ratio", slack.minimum, stat="min")
            metrics.gauge("afd_ffn_slack_ratio", slack.p05, stat="p05")
        metrics.gauge(
            "afd_topology_info",
            1,
            attention_nodes=str(-(-unit.attention_workers // unit.gpus_per_node)),
            ffn_nodes=str(-(-unit.expert_workers // unit.gpus_per_node)),
            gpus_per_node=str(unit.gpus_per_node),
            nvlink_domain=unit.domain,
        )

    def _lanes(self, core: Coordinator) -> None:
        metrics = self._registry
        for name in ("afd_kv_cache_usage_ratio", "afd_kv_cache_blocks", "afd_requests_running"):
            metrics.forget(name)
        for index, lane in core.work.lanes.items():
            rank, free = str(index), lane.free_pages
            metrics.gauge("afd_kv_cache_usage_ratio", lane.used_ratio, rank=rank)
            metrics.gauge("afd_kv_cache_blocks", free, rank=rank, state="free")
            metrics.gauge("afd_kv_cache_blocks", lane.capacity.kv_pages - free, rank=rank, state="used")
            metrics.gauge("afd_requests_running", len(lane.running), rank=rank)

    def _workers(self, core: Coordinator) -> None:
        for place in core.members.places:
            ready = place in core.epochs.table
            self._registry.gauge(
                "afd_worker_ready", float(ready), role=place.role.value, rank=str(place.index)
            )
