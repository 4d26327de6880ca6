"""What a unit waits for, in words for conditions: the pod, the reason, and what helps."""

from __future__ import annotations

from afd_operator.lifecycle.goal import Goal
from afd_operator.lifecycle.observed import PodState
from afd_operator.lifecycle.view import UnitView
from afd_operator.resources.pods import pod_name

OVERDUE_S = 60.0
"""A pod still there so long after it ought to be gone is on a node that does not answer."""


def waits_for(unit: UnitView, goal: Goal) -> str:
    """What a unit waits for, the most telling first."""
    name = goal.deployment.metadata.name
    if overdue := [p for p in unit.pods if p.deleted and (goal.now - p.deleted).total_seconds() > OVERDUE_S]:
        pod = overdue[0]
        return (
            f"pod {pod.name} ought to be gone since {pod.deleted:%Y-%m-%dT%H:%M:%SZ}, but its node does not "
            f"answer: remove {pod.node}, or taint it node.kubernetes.io/out-of-service if it is down"
        )
    if troubled := [pod for pod in unit.pods if pod.trouble and not pod.ready]:
        more = f" (and {len(troubled) - 1} more)" if len(troubled) > 1 else ""
        return f"pod {troubled[0].name}: {troubled[0].trouble}{more}"
    names = {place: pod_name(name, unit.unit, place) for place in goal.places}
    if former := sorted(set(names.values()) & goal.names_taken):
        return f"pod {former[0]} of a deleted deployment of this name is not gone yet"
    if going := [pod.name for pod in unit.pods if pod.deleted]:
        return f"waits for pod {going[0]} to be gone"
    lasting = {pod.place for pod in unit.pods if pod.lasting}
    if absent := [names[place] for place in goal.places if place not in lasting]:
        return f"{len(absent)} of {len(names)} pods are missing: {', '.join(absent[:3])}"
    if unit.report is not None and unit.report.waiting_for:
        return unit.report.waiting_for
    ready = sum(pod.ready for pod in unit.pods)
    return f"{ready} of {len(names)} pods are Ready"


def waits_for_nodes(pods: list[PodState]) -> str:
    troubled = [pod for pod in pods if pod.trouble]
    first = troubled[0] if troubled else pods[0]
    return f"{len(pods)} pods have no node yet: {first.name}: {first.trouble or 'waits for the scheduler'}"


def waits_for_end(pods: tuple[PodState, ...]) -> str:
    return f"{len(pods)} pods are not gone yet" if pods else "all pods are gone"
