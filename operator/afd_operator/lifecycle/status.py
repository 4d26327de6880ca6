"""The status of a deployment, from what one look came to. The same findings give the same status, to the
byte, so that an unchanged one is not written again; measured numbers are rounded for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import floor, log10
from typing import Any

from pydantic import ValidationError

from afd_operator.api.conditions import Condition, carry_over
from afd_operator.api.status import AFDDeploymentStatus, Observed, Plan, UnitStatus
from afd_operator.lifecycle.conditions import conditions, invalid
from afd_operator.lifecycle.outcome import Outcome, UnitOutcome
from afd_operator.resources.ownership import unit_pods_selector
from afd_unit.identity import Role
from afd_unit.report import UnitReport

_DIGITS = 2
"""Significant digits of measured numbers: a unit under a steady load shows steady ones."""
_DOMAINS = 3
"""Domains that the DOMAIN column names."""
_MESSAGE_LIMIT = 1024


def status(outcome: Outcome) -> AFDDeploymentStatus:
    """The status to write, with the times of the present one's conditions where they have not changed."""
    deployment = outcome.deployment
    generation = deployment.metadata.generation
    reports = [unit.view.report for unit in outcome.units if unit.view.report]
    return AFDDeploymentStatus(
        observed_generation=generation,
        units=sum(unit.plan.domain is not None for unit in outcome.units),
        ready_units=len(outcome.serving),
        ready=f"{len(outcome.serving)}/{deployment.spec.units}",
        selector=unit_pods_selector(deployment),
        domain=_domains(outcome.units),
        conditions=stamped(outcome, conditions(outcome)),
        plan=_plan(outcome),
        observed=_observed(reports),
        unit_statuses=[_unit(unit) for unit in outcome.units],
    )


def stamped(outcome: Outcome, found: list[Condition]) -> list[Condition]:
    deployment = outcome.deployment
    return carry_over(
        deployment.status.conditions, found, generation=deployment.metadata.generation, now=outcome.now
    )


def _plan(outcome: Outcome) -> Plan | None:
    spec = outcome.deployment.spec
    attention, expert = spec.ratio.attention, spec.ratio.expert
    if attention is None or expert is None:
        return None
    return Plan(
        ratio=f"{attention}:{expert}",
        attention=attention,
        expert=expert,
        gpus=(attention + expert) * spec.placement.gpus_per_node,
        microbatches=spec.microbatches,
    )


def _unit(unit: UnitOutcome) -> UnitStatus:
    view, plan = unit.view, unit.plan
    report = view.report
    message = plan.message
    return UnitStatus(
        unit=view.unit,
        stage=plan.stage,
        state=report.state if report else None,
        domain=plan.domain,
        epoch=report.epoch if report else None,
        pods=len(view.pods),
        ready_pods=sum(pod.ready for pod in view.pods),
        revision=view.pods[0].revision if view.pods else None,
        step_time=_milliseconds(report.step_time_s if report else None),
        ffn_slack=_percent(report.ffn_slack_ratio if report else None),
        message=message[:_MESSAGE_LIMIT] if message else None,
    )


def _domains(units: Iterable[UnitOutcome]) -> str | None:
    named = [unit.plan.domain for unit in units if unit.plan.domain]
    more = len(named) - _DOMAINS
    return (", ".join(named[:_DOMAINS]) + (f" +{more}" if more > 0 else "")) or None


def _observed(reports: list[UnitReport]) -> Observed | None:
    """The slowest unit's numbers, and the output of all."""
    times = [report.step_time_s for report in reports if report.step_time_s is not None]
    slacks = [report.ffn_slack_ratio for report in reports if report.ffn_slack_ratio is not None]
    rates = [report.tokens_per_second for report in reports if report.tokens_per_second is not None]
    if not (times or slacks or rates):
        return None
    return Observed(
        step_time=_milliseconds(max(times, default=None)),
        ffn_slack=_percent(min(slacks, default=None)),
        tokens_per_second=int(_rounded(sum(rates))) if rates else None,
    )


def _milliseconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{_rounded(seconds * 1000):g}ms"


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{round(ratio * 100)}%"


def _rounded(value: float) -> float:
    return round(value, _DIGITS - 1 - floor(log10(abs(value)))) if value else 0.0


def nodes_by_role(outcome: Outcome) -> dict[tuple[Role, bool], int]:
    """Nodes of all units by (role, ready), for the operator's metrics."""
    counts = {(role, ready): 0 for role in (Role.ATTENTION, Role.EXPERT) for ready in (True, False)}
    for unit in outcome.units:
        for pod in unit.view.bound:
            if (pod.role, pod.ready) in counts:
                counts[pod.role, pod.ready] += 1
    return counts


def read_status(body: Mapping[str, Any]) -> AFDDeploymentStatus:
    """The status that an AFDDeployment carries; empty if another version wrote what this one cannot read."""
    try:
        return AFDDeploymentStatus.model_validate(body.get("status") or {})
    except ValidationError:
        return AFDDeploymentStatus()


def invalid_status(body: Mapping[str, Any], message: str, now: datetime) -> AFDDeploymentStatus:
    """For a stored object that this version cannot read: what was found out before stays, and it is said."""
    before = read_status(body)
    generation = body["metadata"].get("generation", 0)
    found = carry_over(before.conditions, invalid(message), generation=generation, now=now)
    return before.model_copy(update={"observed_generation": generation, "conditions": found})
