"""What one look at a deployment finds: its pods, its other children, reservations, reports, room.

`PodState` keeps of a pod what decisions depend on, so that a table test can write one down in a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from afd_operator.placement.domains import Cluster
from afd_operator.placement.facts import unit_of
from afd_operator.placement.reservation import Reservation, from_lease
from afd_operator.resources.ownership import controller_uid
from afd_operator.resources.pods import Place
from afd_unit import labels
from afd_unit.identity import Role
from afd_unit.report import UnitReport

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PodState:
    """A pod of a unit or of the gateway. Times are those of the API server."""

    name: str
    uid: str
    owner_uid: str
    role: Role
    unit: int | None = None
    """None for a gateway."""
    index: int = 0
    revision: str = ""
    domain: str = ""
    node: str | None = None
    ip: str | None = None
    gated: bool = False
    """Still has our scheduling gate."""
    phase: str = "Pending"
    ready: bool = False
    restarted: bool = False
    """A container of it has died before."""
    created: datetime
    deleted: datetime | None = None
    """When it ought to be gone, once its deletion was asked for."""
    unschedulable_since: datetime | None = None
    trouble: str | None = None
    """Why it does not get on, in the words of scheduler or kubelet."""

    @property
    def place(self) -> Place:
        return Place(self.role, self.index)

    @property
    def finished(self) -> bool:
        """Evicted, refused by its kubelet, or ended: it will never run again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def lasting(self) -> bool:
        """Neither finished nor on its way out."""
        return not self.finished and self.deleted is None


@dataclass(frozen=True)
class Refusal:
    """The API server would not take an object of ours: quota, policy, or a name that is somebody else's."""

    reason: str
    """One CamelCase word: Forbidden, Invalid, NameTaken."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Observed:
    """`children` are applied objects that the deployment controls, by (kind, name)."""

    pods: tuple[PodState, ...] = ()
    former_pods: tuple[PodState, ...] = ()
    """Pods of a deleted namesake. They hold the names that ours need."""
    children: Mapping[tuple[str, str], Json] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    """Of all deployments."""
    reports: Mapping[int, UnitReport] = field(default_factory=dict)
    cluster: Cluster | None = None
    """Room in the domains; None until a plan asks for it (`Plan.needs_cluster`): it is the costly look."""
    claim_exists: bool = True
    """The PersistentVolumeClaim of `model.source` is there; looked up together with the cluster."""
    refusals: tuple[Refusal, ...] = ()
    """What the API server refused of the plan just tried."""


def look(
    owner_uid: str, *, pods: Iterable[Json], children: Iterable[Json], leases: Iterable[Json]
) -> Observed:
    """What a look at the deployment with this uid found, from lists of API objects.

    `pods` and `children` may be those of namesakes as well: lists are made by label, and a label knows
    the name only. `leases` are the reservations of all deployments.
    """
    states = [state for body in pods if (state := pod_from_api(body)) is not None]
    return Observed(
        pods=tuple(state for state in states if state.owner_uid == owner_uid),
        former_pods=tuple(state for state in states if state.owner_uid != owner_uid),
        children={
            (body["kind"], body["metadata"]["name"]): body
            for body in children
            if controller_uid(body) == owner_uid
        },
        reservations=tuple(found for body in leases if (found := from_lease(body)) is not None),
    )


def pod_from_api(body: Json) -> PodState | None:
    """The state of a core/v1 Pod that carries our labels; None for one that lacks them."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    found, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    try:
        role, uid = Role(found[labels.ROLE]), found[labels.DEPLOYMENT_UID]
    except (KeyError, ValueError):
        return None
    unit = unit_of(body)
    if unit is None and role is not Role.GATEWAY:
        return None
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    containers = status.get("containerStatuses") or ()
    return PodState(
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=uid,
        role=role,
        unit=unit.unit if unit else None,
        index=int(found.get(labels.INDEX, 0)),
        revision=notes.get(labels.REVISION, ""),
        domain=notes.get(labels.DOMAIN, ""),
        node=spec.get("nodeName"),
        ip=status.get("podIP"),
        gated=any(gate["name"] == labels.PLACEMENT_GATE for gate in spec.get("schedulingGates") or ()),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        restarted=any(container.get("restartCount", 0) for container in containers),
        created=_time(metadata["creationTimestamp"]),
        deleted=_time(metadata["deletionTimestamp"]) if metadata.get("deletionTimestamp") else None,
        unschedulable_since=(
            _time(scheduled["lastTransitionTime"])
            if scheduled.get("reason") == "Unschedulable" and scheduled.get("lastTransitionTime")
            else None
        ),
        trouble=next(_troubles(status, scheduled), None),
    )


def _troubles(status: Json, scheduled: Json) -> Iterator[str]:
    if scheduled.get("reason") == "Unschedulable":
        yield f"not schedulable: {scheduled.get('message', '')}"
    if status.get("phase") == "Failed":
        yield f"failed: {status.get('reason', '')} {status.get('message', '')}".strip()
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        # These two are how every container begins.
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield f"{container['name']}: {waiting['reason']} {waiting.get('message', '')}".strip()
        last = (container.get("lastState") or {}).get("terminated") or {}
        if last and not container.get("ready"):
            reason = last.get("reason", "")
            yield f"{container['name']}: last ended with code {last.get('exitCode')} ({reason})"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
