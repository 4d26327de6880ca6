"""A deployment, one look: its units in turn, and what they share (account, Services, gateway)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.status import AFDDeploymentStatus, UnitStage
from afd_operator.api.unsupported import not_acted_on
from afd_operator.lifecycle.actions import Action, Apply, Delete, in_order
from afd_operator.lifecycle.goal import Goal, goal
from afd_operator.lifecycle.observed import Observed
from afd_operator.lifecycle.outcome import Outcome, UnitOutcome
from afd_operator.lifecycle.status import status
from afd_operator.lifecycle.unit import UnitPlan, plan_unit, stop
from afd_operator.lifecycle.view import UnitView, view
from afd_operator.placement.facts import unit_of
from afd_operator.resources.drift import as_wanted, stamped
from afd_operator.resources.gateway import gateway
from afd_operator.resources.services import account, client_service, coordinator_service, coordinators_service
from afd_unit.identity import Role

REFRESH_S = 30.0
"""How often the numbers of running units are read anew, and so at most written."""

_RUNNING = frozenset({UnitStage.STARTED, UnitStage.READY, UnitStage.BROKEN})


@dataclass(frozen=True)
class Plan:
    """Do the actions, then write the status, then look again after `requeue_after_s` or the next event.

    `needs_cluster`: nothing was decided that depends on room in the domains; look at those too, and plan
    again. Such a plan has no actions and its status is not to be written.
    """

    actions: tuple[Action, ...]
    status: AFDDeploymentStatus
    outcome: Outcome
    requeue_after_s: float | None = None
    needs_cluster: bool = False


def plan(deployment: AFDDeployment, observed: Observed, now: datetime, *, status_reader: str) -> Plan:
    """`status_reader` is the operator's account, `namespace/name`: coordinators answer to it alone."""
    fields = tuple(not_acted_on(deployment.spec))
    blocked = any(entry.blocks for entry in fields)
    aim = goal(
        deployment,
        status_reader=status_reader,
        now=now,
        cluster=observed.cluster,
        claim_exists=observed.claim_exists,
        names_taken=frozenset(pod.name for pod in observed.former_pods),
    )
    views = _views(deployment, observed)
    units = tuple(_blocked(views, deployment) if blocked else _units(views, aim))
    outcome = Outcome(
        deployment=deployment,
        units=tuple(sorted(units, key=lambda unit: unit.index)),
        gateways_ready=sum(pod.ready for pod in observed.pods if pod.role is Role.GATEWAY),
        not_acted_on=fields,
        refusals=observed.refusals,
        now=now,
    )
    actions = [action for unit in units for action in unit.plan.actions]
    if not blocked:
        actions += _shared(deployment, observed, units)
    actions += _leftovers(observed, units)
    # What the API server has just refused, it is not asked again before the back-off is over.
    needs_cluster = any(unit.plan.needs_cluster for unit in units)
    return Plan(
        () if needs_cluster or observed.refusals else in_order(actions),
        status(outcome),
        outcome,
        _requeue_after_s(units),
        needs_cluster,
    )


def _views(deployment: AFDDeployment, observed: Observed) -> list[UnitView]:
    """All units that the spec wants, and all that there is something left of."""
    metadata = deployment.metadata
    named = set(range(deployment.spec.units))
    named |= {pod.unit for pod in observed.pods if pod.unit is not None}
    named |= {
        reservation.holder.id.unit
        for reservation in observed.reservations
        if reservation.holder.id.deployment_uid == metadata.uid
    }
    named |= {
        unit.unit
        for (kind, _), body in observed.children.items()
        if kind == "ConfigMap" and (unit := unit_of(body)) is not None
    }
    return [view(unit, observed, metadata.name, metadata.uid) for unit in sorted(named)]


def _units(views: list[UnitView], aim: Goal) -> Iterator[UnitOutcome]:
    """What is too much goes first, the highest first; then the others, the lowest first."""
    spec = aim.deployment.spec
    for unit in reversed([unit for unit in views if unit.unit >= spec.units]):
        yield UnitOutcome(unit, stop(unit, "is not asked for any more", release=True), wanted=False)
    wanted = [unit for unit in views if unit.unit < spec.units]
    turn = _turn(wanted, aim)
    for unit in wanted:
        done = plan_unit(unit, aim, may_update=unit.unit == turn)
        if done.domain is not None and unit.reservation is None:
            aim = aim.having(aim.reserved(unit.unit, done.domain))
        yield UnitOutcome(unit, done, wanted=True)


def _turn(wanted: list[UnitView], aim: Goal) -> int | None:
    """The unit that may give up serving for a new revision: one at a time, and none while another that
    has a domain does not serve. (A unit that does not serve has nothing to give up, and need not wait.)"""
    if any(unit.exists and not unit.serves for unit in wanted):
        return None
    key = aim.deployment.spec.placement.topology_key
    return next((unit.unit for unit in wanted if unit.outdated(aim.revision, key)), None)


def _blocked(views: list[UnitView], deployment: AFDDeployment) -> Iterator[UnitOutcome]:
    """This version cannot do what the spec asks for: what runs goes on as it is, nothing else is started."""
    for unit in reversed(views):
        wanted = unit.unit < deployment.spec.units
        if wanted and unit.started:
            stage = UnitStage.READY if unit.serves else UnitStage.BROKEN
            domain = unit.reservation.domain if unit.reservation else None
            yield UnitOutcome(unit, UnitPlan(stage, domain=domain, outdated=True), wanted)
        elif unit.exists:
            yield UnitOutcome(unit, stop(unit, "is not started", release=True), wanted)
        else:
            yield UnitOutcome(unit, UnitPlan(UnitStage.PENDING, message="is not started"), wanted)


def _shared(
    deployment: AFDDeployment, observed: Observed, units: tuple[UnitOutcome, ...]
) -> Iterator[Action]:
    """What all units share, from the first reserved domain on; the gateway from the first started unit on,
    so that a deployment which waits for a domain runs no pod at all. Both stay while units come and go."""
    placed = [unit.index for unit in units if unit.wanted and unit.plan.domain is not None]
    if not placed and not observed.children:
        return
    manifests = [
        account(deployment),
        coordinators_service(deployment),
        client_service(deployment),
        *(coordinator_service(deployment, unit) for unit in placed),
    ]
    front = gateway(deployment)
    started = any(unit.wanted and unit.plan.stage in _RUNNING for unit in units)
    if started or ("Deployment", front["metadata"]["name"]) in observed.children:
        manifests.append(front)
    for manifest in map(stamped, manifests):
        if not as_wanted(observed.children.get((manifest["kind"], manifest["metadata"]["name"])), manifest):
            yield Apply(manifest)


def _leftovers(observed: Observed, units: tuple[UnitOutcome, ...]) -> Iterator[Action]:
    """The Services of units that are gone and not wanted (their ConfigMaps went first)."""
    gone = {unit.index for unit in units if not unit.wanted and not unit.view.pods}
    for (kind, name), body in observed.children.items():
        unit = unit_of(body)
        if kind == "Service" and unit is not None and unit.unit in gone:
            yield Delete(kind, name, body["metadata"]["uid"])


def _requeue_after_s(units: tuple[UnitOutcome, ...]) -> float | None:
    times = [unit.plan.recheck_s for unit in units if unit.plan.recheck_s is not None]
    if any(unit.plan.stage in _RUNNING for unit in units):
        times.append(REFRESH_S)
    return min(times, default=None)
