"""The conditions of a deployment, from what one look came to. Types and their meaning: `api.conditions`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from afd_operator.api.conditions import Condition, condition
from afd_operator.api.conditions import ConditionType as C
from afd_operator.api.status import UnitStage
from afd_operator.lifecycle.outcome import Outcome, UnitOutcome
from afd_operator.lifecycle.unit import NoModel
from afd_operator.placement.choice import Full, Impossible
from afd_unit.identity import Role

_LISTED = 3
"""Units that a message names."""


class Reason(StrEnum):
    """Machine-readable reasons beside those that the API server gives (`observed.Refusal`)."""

    UNITS_SERVE = "UnitsServe"
    SCALED_TO_ZERO = "ScaledToZero"
    SPEC_NOT_ACTED_ON = "SpecNotActedOn"
    INVALID_SPEC = "InvalidSpec"
    NO_DOMAIN_LARGE_ENOUGH = "NoDomainLargeEnough"
    MODEL_NOT_FOUND = "ModelNotFound"
    WAITING_FOR_DOMAIN = "WaitingForDomain"
    DOMAINS_RESERVED = "DomainsReserved"
    UNITS_STARTING = "UnitsStarting"
    UNITS_STOPPING = "UnitsStopping"
    UNITS_OUTDATED = "UnitsOutdated"
    UNITS_BROKEN = "UnitsBroken"
    GATEWAY_NOT_READY = "GatewayNotReady"
    NODES_BOUND = "NodesBound"
    NODES_MISSING = "NodesMissing"
    AS_SPECIFIED = "AsSpecified"
    ALL_FIELDS = "AllFields"
    FIELDS_WITHOUT_EFFECT = "FieldsWithoutEffect"
    HIDDEN = "Hidden"
    EXPOSED = "Exposed"
    NOT_MEASURED = "NotMeasured"


_HOPELESS: dict[type[object], Reason] = {
    Impossible: Reason.NO_DOMAIN_LARGE_ENOUGH,
    NoModel: Reason.MODEL_NOT_FOUND,
}
"""What waiting does not help against."""


def conditions(outcome: Outcome) -> list[Condition]:
    """Ready first; Reconciling and Stalled only while they hold."""
    ready = _ready(outcome)
    stalled = _stalled(outcome)
    found = [ready]
    if stalled:
        found.append(stalled)
    elif ready.status != "True":
        found.append(condition(C.RECONCILING, True, ready.reason, ready.message))
    return [
        *found,
        _domain_selected(outcome),
        _ratio_satisfied(outcome),
        _degraded(outcome),
        _ffn_hidden(outcome),
        _spec_acted_on(outcome),
    ]


def invalid(message: str) -> list[Condition]:
    """For a stored object that this version cannot read: nothing of it is touched."""
    return [
        condition(C.READY, False, Reason.INVALID_SPEC, message),
        condition(C.STALLED, True, Reason.INVALID_SPEC, message),
    ]


def _ready(outcome: Outcome) -> Condition:
    if stalled := _stalled(outcome):
        return condition(C.READY, False, stalled.reason, stalled.message)
    wanted, serving = outcome.wanted, outcome.serving
    count = f"{len(serving)} of {len(wanted)} units serve"
    message = "; ".join([count, *_few(outcome.troubles())])
    if problem := _problem(outcome):
        return condition(C.READY, False, problem, message)
    if not wanted:
        return condition(C.READY, True, Reason.SCALED_TO_ZERO, "0 units are asked for")
    if not outcome.gateways_ready:
        return condition(C.READY, False, Reason.GATEWAY_NOT_READY, f"{count}; no gateway is Ready")
    return condition(C.READY, True, Reason.UNITS_SERVE, count)


def _problem(outcome: Outcome) -> Reason | None:
    """Why not all is as specified: the most telling of the units' reasons."""
    rest = [unit for unit in outcome.units if unit not in outcome.serving]
    stages = {unit.plan.stage for unit in rest if unit.wanted}
    if UnitStage.BROKEN in stages:
        return Reason.UNITS_BROKEN
    if any(isinstance(unit.plan.obstacle, Full) for unit in rest):
        return Reason.WAITING_FOR_DOMAIN
    if any(unit.plan.outdated for unit in rest):
        return Reason.UNITS_OUTDATED
    if stages:
        return Reason.UNITS_STARTING
    return Reason.UNITS_STOPPING if rest else None


def _stalled(outcome: Outcome) -> Condition | None:
    """Somebody has to do something: the operator's own work cannot get there."""
    if outcome.blocking:
        message = "no unit is started: " + "; ".join(map(str, outcome.blocking))
        return condition(C.STALLED, True, Reason.SPEC_NOT_ACTED_ON, message)
    if outcome.refusals:
        first = outcome.refusals[0]
        return condition(C.STALLED, True, first.reason, first.message)
    for unit in outcome.wanted:
        if isinstance(unit.plan.obstacle, Impossible | NoModel):
            message = f"unit {unit.index}: {unit.plan.message}"
            return condition(C.STALLED, True, _HOPELESS[type(unit.plan.obstacle)], message)
    return None


def _domain_selected(outcome: Outcome) -> Condition:
    without = [unit for unit in outcome.wanted if unit.plan.domain is None]
    if without:
        reason = Reason.SPEC_NOT_ACTED_ON if outcome.blocking else Reason.WAITING_FOR_DOMAIN
        reason = next((_HOPELESS[t] for u in without if (t := type(u.plan.obstacle)) in _HOPELESS), reason)
        return condition(C.DOMAIN_SELECTED, False, reason, "; ".join(_few(map(_about, without))))
    named = [f"unit {unit.index} in {unit.plan.domain}" for unit in outcome.wanted]
    return condition(C.DOMAIN_SELECTED, True, Reason.DOMAINS_RESERVED, ", ".join(_few(named)))


def _ratio_satisfied(outcome: Outcome) -> Condition:
    ratio = outcome.deployment.spec.ratio
    goals = {Role.ATTENTION: ratio.attention or 0, Role.EXPERT: ratio.expert or 0}
    lacking = []
    for unit in outcome.wanted:
        counts = {role: unit.nodes(role) for role in goals}
        if counts != goals:
            numbers = ", ".join(f"{counts[role]} of {goals[role]} {role}" for role in goals)
            lacking.append(f"unit {unit.index} has {numbers} nodes")
    if lacking:
        return condition(C.RATIO_SATISFIED, False, Reason.NODES_MISSING, "; ".join(_few(lacking)))
    shape = f"{goals[Role.ATTENTION]}:{goals[Role.EXPERT]} in each unit"
    return condition(C.RATIO_SATISFIED, True, Reason.NODES_BOUND, shape)


def _degraded(outcome: Outcome) -> Condition:
    broken = [unit for unit in outcome.wanted if unit.plan.stage is UnitStage.BROKEN]
    if broken:
        return condition(C.DEGRADED, True, Reason.UNITS_BROKEN, "; ".join(_few(map(_about, broken))))
    return condition(C.DEGRADED, False, Reason.AS_SPECIFIED)


def _ffn_hidden(outcome: Outcome) -> Condition:
    slacks = {
        unit.index: unit.view.report.ffn_slack_ratio
        for unit in outcome.wanted
        if unit.view.report is not None and unit.view.report.ffn_slack_ratio is not None
    }
    if not slacks:
        return condition(C.FFN_HIDDEN, None, Reason.NOT_MEASURED, "no unit has measured a step yet")
    exposed = [f"unit {index}" for index, slack in slacks.items() if slack < 0]
    if exposed:
        message = f"expert time exceeds attention time in {', '.join(_few(exposed))}"
        return condition(C.FFN_HIDDEN, False, Reason.EXPOSED, message)
    return condition(C.FFN_HIDDEN, True, Reason.HIDDEN)


def _spec_acted_on(outcome: Outcome) -> Condition:
    if not outcome.not_acted_on:
        return condition(C.SPEC_ACTED_ON, True, Reason.ALL_FIELDS)
    message = "; ".join(map(str, outcome.not_acted_on))
    return condition(C.SPEC_ACTED_ON, False, Reason.FIELDS_WITHOUT_EFFECT, message)


def _about(unit: UnitOutcome) -> str:
    return f"unit {unit.index}: {unit.plan.message or 'has none'}"


def _few(items: Iterable[str]) -> Iterator[str]:
    """The first few of a list, and how many more there are."""
    listed = list(items)
    yield from listed[:_LISTED]
    if len(listed) > _LISTED:
        yield f"and {len(listed) - _LISTED} more"
