"""What placement knows of a cluster: nodes, and the pods that hold their GPUs. Read from API objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from afd_operator.placement.scheduling import Taint
from afd_unit import labels

Json = Mapping[str, Any]

_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, order=True)
class UnitId:
    """One unit of one AFDDeployment. The uid, not the name: a namesake that comes later is another."""

    deployment_uid: str
    unit: int


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str]
    ready: bool
    schedulable: bool
    """False while the node is cordoned."""
    gpus: int
    """Allocatable `nvidia.com/gpu`."""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod bound to a node that holds `gpus` of it until it is gone, Terminating included."""

    node: str
    gpus: int
    unit: UnitId | None
    """The unit that it belongs to; None for a pod that is not ours."""


def node_from_api(body: Json) -> Node:
    """The facts of a core/v1 Node."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return Node(
        name=body["metadata"]["name"],
        labels=dict(body["metadata"].get("labels") or {}),
        ready=conditions.get("Ready") == "True",
        schedulable=not spec.get("unschedulable", False),
        gpus=_gpus(status.get("allocatable")),
        taints=tuple(
            Taint(key=t["key"], effect=t["effect"], value=t.get("value", ""))
            for t in spec.get("taints") or ()
        ),
    )


def occupant_from_api(body: Json) -> Occupant | None:
    """The facts of a core/v1 Pod; None if it holds no GPU (not bound, finished, or asks for none)."""
    spec = body["spec"]
    node = spec.get("nodeName")
    if not node or (body.get("status") or {}).get("phase") in _FINISHED:
        return None
    gpus = _pod_gpus(spec)
    return Occupant(node=node, gpus=gpus, unit=unit_of(body)) if gpus else None


def unit_of(body: Json) -> UnitId | None:
    """The unit that an object of ours is labelled with; None for anything else."""
    found = body["metadata"].get("labels") or {}
    uid, unit = found.get(labels.DEPLOYMENT_UID), found.get(labels.UNIT)
    return UnitId(uid, int(unit)) if uid and unit is not None and unit.isdecimal() else None


def _pod_gpus(spec: Json) -> int:
    """What the scheduler counts: all containers together (sidecars too), or the largest init container."""
    sidecars, init = [], [0]
    for container in spec.get("initContainers") or ():
        held = _container_gpus(container)
        if container.get("restartPolicy") == "Always":
            sidecars.append(held)
        else:
            init.append(held)
    return max(sum(_container_gpus(c) for c in spec.get("containers") or ()) + sum(sidecars), max(init))


def _container_gpus(container: Json) -> int:
    # Extended resources cannot be overcommitted: request and limit are equal, so the limit tells.
    return _gpus((container.get("resources") or {}).get("limits"))


def _gpus(quantities: Json | None) -> int:
    """Extended resources are whole numbers, and the API server stores them without a suffix below 1000."""
    return int((quantities or {}).get(labels.GPU, 0))


def taken(occupants: Iterable[Occupant], *, but: UnitId) -> dict[str, int]:
    """GPUs in use by node name, without what unit `but` holds itself."""
    used: dict[str, int] = {}
    for occupant in occupants:
        if occupant.unit != but:
            used[occupant.node] = used.get(occupant.node, 0) + occupant.gpus
    return used
