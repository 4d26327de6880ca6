"""The unit report, from what the core knows now."""

from __future__ import annotations

from afd_runtime.coordinator.core import Coordinator
from afd_unit.identity import Member, Role
from afd_unit.report import UnitReport, WorkerReport


def report(core: Coordinator, now_s: float) -> UnitReport:
    slack = core.window.slack(now_s)
    return UnitReport(
        deployment=core.unit.deployment,
        unit=core.unit.unit,
        state=core.epochs.state,
        epoch=core.epochs.number,
        committed_step=core.work.committed_step,
        workers=[_worker(core, place) for place in core.members.places],
        requests_running=sum(len(lane.running) for lane in core.work.lanes.values()),
        requests_waiting=len(core.work.waiting),
        step_time_s=core.window.step_time_s(now_s),
        ffn_slack_ratio=slack.mean if slack else None,
        tokens_per_second=core.window.tokens_per_s(now_s),
        waiting_for=core.waiting_for(now_s),
    )


def _worker(core: Coordinator, place: Member) -> WorkerReport:
    lane = core.work.lanes.get(place.index) if place.role is Role.ATTENTION else None
    return WorkerReport(
        role=place.role,
        index=place.index,
        ready=place in core.epochs.table,
        requests_running=len(lane.running) if lane else 0,
        kv_usage_ratio=lane.used_ratio if lane else 0.0,
    )
