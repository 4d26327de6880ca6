"""One unit, one look: which stage it is in and what moves it on. The stages are drawn in the package."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from afd_operator.api.policies import DomainFailure, UpdateStrategy
from afd_operator.api.status import UnitStage
from afd_operator.lifecycle.actions import (
    Action,
    Apply,
    CreatePod,
    Delete,
    DeletePod,
    LiftGate,
    Release,
    Reserve,
)
from afd_operator.lifecycle.goal import Goal
from afd_operator.lifecycle.view import UnitView
from afd_operator.lifecycle.waits import waits_for, waits_for_end, waits_for_nodes
from afd_operator.placement.choice import Chosen, Full, Impossible, choose, has_room
from afd_operator.resources.drift import as_wanted, stamped
from afd_operator.resources.pods import pod_name, unit_pod
from afd_operator.resources.unit_config import unit_config
from afd_unit.identity import Role

WAIT_FOR_ROOM_S = 30.0
"""A unit without a domain looks again this often: GPUs that others free cause no event of ours."""
SETTLE_S = 10.0
"""A pod that fails at once is replaced no faster than this."""
STRANDED_S = 60.0
"""How long a pod of a running unit may find no node in its domain before the unit may move."""


@dataclass(frozen=True)
class NoModel:
    """The claim that holds the model is not there: no domain is taken for a unit that could not start."""

    message: str


Obstacle = Full | Impossible | NoModel


@dataclass(frozen=True)
class UnitPlan:
    """`domain` is the one that is reserved when the actions are done."""

    stage: UnitStage
    actions: tuple[Action, ...] = ()
    message: str | None = None
    domain: str | None = None
    obstacle: Obstacle | None = None
    """Why it has no domain, or the new revision none."""
    outdated: bool = False
    needs_cluster: bool = False
    recheck_s: float | None = None

    def after(self, *before: Action) -> UnitPlan:
        return replace(self, actions=(*before, *self.actions))


@dataclass(frozen=True)
class _Look:
    """A unit and its goal: what every step below takes."""

    unit: UnitView
    goal: Goal
    may_update: bool = field(default=True)
    """It is this unit's turn to be replaced by a newer revision."""


def plan_unit(unit: UnitView, goal: Goal, *, may_update: bool) -> UnitPlan:
    """The next steps of a unit that the spec wants."""
    look = _Look(unit, goal, may_update)
    if extra := unit.more_reservations:
        return plan_unit(replace(unit, more_reservations=()), goal, may_update=may_update).after(
            *map(Release, extra)
        )
    if unit.reservation is None and unit.pods:
        return _claim(look)
    if unit.outdated(goal.revision, goal.deployment.spec.placement.topology_key):
        return _update(look)
    if unit.reservation is None:
        return _place(look)
    if unit.started:
        return _keep(look)
    return _bring_up(look)


def stop(unit: UnitView, why: str, *, release: bool) -> UnitPlan:
    """Take a unit down: ConfigMap first, so that nothing of it can start again; the domain last."""
    actions: list[Action] = []
    if unit.config is not None:
        actions.append(Delete("ConfigMap", unit.config["metadata"]["name"], unit.config["metadata"]["uid"]))
    actions += [DeletePod(pod.name, pod.uid, why) for pod in unit.pods if pod.deleted is None]
    if release and not unit.pods:
        held = (unit.reservation, *unit.more_reservations)
        return UnitPlan(UnitStage.PENDING, (*actions, *(Release(r) for r in held if r)), why)
    return UnitPlan(
        UnitStage.STOPPING,
        tuple(actions),
        f"{why}; {waits_for_end(unit.pods)}",
        domain=unit.reservation.domain if unit.reservation else None,
    )


# ---- before the unit runs ----


def _claim(look: _Look) -> UnitPlan:
    """Pods without a reservation: somebody deleted the record. Take it again, or make room for who has it."""
    unit, goal = look.unit, look.goal
    domain = unit.pods[0].domain
    if goal.cluster is None:
        return UnitPlan(UnitStage.RESERVED, domain=domain, needs_cluster=True)
    record = goal.reserved(unit.unit, domain)
    others = [r for r in goal.cluster.reservations if r.lease == record.lease]
    if others:
        return stop(unit, f"domain {domain} is held by {others[0].holder}", release=True)
    reserve = Reserve(record.topology_key, domain, record.holder)
    return plan_unit(replace(unit, reservation=record), goal, may_update=look.may_update).after(reserve)


def _place(look: _Look) -> UnitPlan:
    """No domain yet: choose one."""
    unit, goal = look.unit, look.goal
    if goal.cluster is None:
        return UnitPlan(UnitStage.PENDING, needs_cluster=True)
    choice = choose(goal.cluster, goal.request(unit.unit)) if goal.claim_exists else _no_model(goal)
    if not isinstance(choice, Chosen):
        return UnitPlan(UnitStage.PENDING, message=choice.message, obstacle=choice, recheck_s=WAIT_FOR_ROOM_S)
    record = goal.reserved(unit.unit, choice.domain)
    reserve = Reserve(record.topology_key, record.domain, record.holder)
    return _bring_up(_Look(replace(unit, reservation=record), goal)).after(reserve)


def _bring_up(look: _Look) -> UnitPlan:
    """A domain is reserved, nothing runs: make all pods, release them at once, start when all are bound."""
    unit, goal = look.unit, look.goal
    assert unit.reservation is not None
    domain = unit.reservation.domain
    if unit.config is not None:
        # Left over from a life that ended: with it, new pods would start one by one.
        return stop(unit, "starts over", release=False)
    if sorted(pod.place for pod in unit.bound) == sorted(goal.places) and len(unit.pods) == len(goal.places):
        config = stamped(unit_config(goal.deployment, unit.unit, domain, goal.status_reader))
        return UnitPlan(UnitStage.STARTED, (Apply(config),), "containers start", domain)
    if goal.cluster is None:
        return UnitPlan(UnitStage.RESERVED, domain=domain, needs_cluster=True)
    same_key = unit.reservation.topology_key == goal.deployment.spec.placement.topology_key
    if not (same_key and has_room(goal.cluster, goal.request(unit.unit), domain)):
        if unit.pods:
            return stop(unit, f"domain {domain} has no room for the unit any more", release=True)
        return _place(_Look(replace(unit, reservation=None), goal)).after(Release(unit.reservation))

    repairs = _repairs(look)
    complete = sorted(pod.place for pod in unit.pods if pod.lasting) == sorted(goal.places)
    if repairs or not complete:
        return UnitPlan(UnitStage.RESERVED, repairs, waits_for(unit, goal), domain, recheck_s=SETTLE_S)
    if gated := [pod for pod in unit.pods if pod.gated]:
        lifts = tuple(LiftGate(pod.name, pod.uid) for pod in gated)
        return UnitPlan(UnitStage.GATED, lifts, "all pods exist", domain)
    unbound = [pod for pod in unit.pods if not pod.node]
    return UnitPlan(UnitStage.RELEASED, (), waits_for_nodes(unbound), domain, recheck_s=WAIT_FOR_ROOM_S)


# ---- while it runs ----


def _keep(look: _Look) -> UnitPlan:
    """The unit runs: replace what it lost, in the same domain; move it as a whole when that cannot work."""
    unit, goal = look.unit, look.goal
    assert unit.reservation is not None
    domain = unit.reservation.domain
    if _stranded(look) and goal.deployment.spec.failure_policy.domain is DomainFailure.RELOCATE:
        if goal.cluster is None:
            return UnitPlan(UnitStage.BROKEN, domain=domain, needs_cluster=True)
        request = goal.request(unit.unit)
        if not has_room(goal.cluster, request, domain) and isinstance(choose(goal.cluster, request), Chosen):
            return stop(unit, f"moves: domain {domain} has too few nodes left", release=True)

    actions = [*_repairs(look), *(LiftGate(pod.name, pod.uid) for pod in unit.pods if pod.gated)]
    config = stamped(unit_config(goal.deployment, unit.unit, domain, goal.status_reader))
    if not as_wanted(unit.config, config):
        actions.append(Apply(config))
    if unit.serves:
        return UnitPlan(UnitStage.READY, tuple(actions), None, domain)
    stage = UnitStage.BROKEN if _lost(unit) else UnitStage.STARTED
    return UnitPlan(stage, tuple(actions), waits_for(unit, goal), domain, recheck_s=SETTLE_S)


def _update(look: _Look) -> UnitPlan:
    """The unit is of another revision: it goes as a whole, in its turn, once there is a place for the new."""
    unit, goal = look.unit, look.goal
    domain = unit.reservation.domain if unit.reservation else None
    going = any(pod.deleted for pod in unit.pods)
    if not unit.started or going:
        return replace(stop(unit, "is replaced by a new revision", release=False), outdated=True)
    keep = UnitPlan(UnitStage.READY if unit.serves else UnitStage.BROKEN, (), None, domain, outdated=True)
    if goal.deployment.spec.update.strategy is UpdateStrategy.ON_DELETE:
        return replace(keep, message="keeps the previous revision until its pods are deleted")
    if unit.serves and not look.may_update:
        return replace(keep, message="keeps the previous revision until other units serve")
    if goal.cluster is None:
        return replace(keep, needs_cluster=True)
    request = goal.request(unit.unit)
    choice = choose(goal.cluster, request, prefer=domain) if goal.claim_exists else _no_model(goal)
    if not isinstance(choice, Chosen):
        return replace(
            keep,
            message=f"keeps the previous revision; the new one: {choice.message}",
            obstacle=choice,
            recheck_s=WAIT_FOR_ROOM_S,
        )
    return replace(stop(unit, "is replaced by a new revision", release=False), outdated=True)


# ---- parts of the steps ----


def _no_model(goal: Goal) -> NoModel:
    source, namespace = goal.deployment.spec.model.source, goal.deployment.metadata.namespace
    return NoModel(f"model.source is {source}, but there is no such PersistentVolumeClaim in {namespace}")


def _repairs(look: _Look) -> tuple[Action, ...]:
    """Delete pods that ended or have no place, create those that are missing and whose name is free."""
    unit, goal = look.unit, look.goal
    assert unit.reservation is not None
    name = goal.deployment.metadata.name
    actions: list[Action] = []
    for pod in unit.pods:
        if pod.deleted is None and pod.place not in goal.places:
            actions.append(DeletePod(pod.name, pod.uid, "has no place in the unit"))
        elif pod.deleted is None and pod.finished and goal.now - pod.created >= timedelta(seconds=SETTLE_S):
            actions.append(DeletePod(pod.name, pod.uid, pod.trouble or pod.phase))
    present = {pod.place for pod in unit.pods}
    missing = (place for place in goal.places if place not in present)
    actions += (
        CreatePod(unit_pod(goal.deployment, unit.unit, place, unit.reservation.domain))
        for place in missing
        if pod_name(name, unit.unit, place) not in goal.names_taken
    )
    return tuple(actions)


def _lost(unit: UnitView) -> bool:
    """A running unit lacks a pod, or a container of it died; a unit that merely starts lacks nothing."""
    lasting = {pod.place for pod in unit.bound}
    return not unit.own_places <= lasting or any(pod.restarted and not pod.ready for pod in unit.pods)


def _stranded(look: _Look) -> bool:
    """The unit cannot go on where it is: a pod that it cannot do without finds no node in its domain.

    It can do without some lanes (the others go on), not without all of them, an expert or the coordinator.
    """
    limit = look.goal.now - timedelta(seconds=STRANDED_S)
    stuck = [pod for pod in look.unit.pods if pod.unschedulable_since and pod.unschedulable_since <= limit]
    lanes = {place for place in look.goal.places if place.role is Role.ATTENTION}
    return any(pod.role is not Role.ATTENTION for pod in stuck) or lanes <= {pod.place for pod in stuck}
