"""A look at one deployment: live lists by label, so that no cache can be behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from afd_operator.api.deployment import AFDDeployment
from afd_operator.controller.api import AFD, CHILDREN, CLAIM, LEASE, NODE, POD, Api, Json, Kind
from afd_operator.lifecycle.observed import Observed, look
from afd_operator.placement import reservation
from afd_operator.placement.domains import Cluster
from afd_operator.placement.facts import Occupant, node_from_api, occupant_from_api
from afd_operator.placement.reservation import Reservation
from afd_unit import labels, names


@dataclass(frozen=True, order=True)
class Key:
    """An AFDDeployment by name: what is queued, and what a reconcile is about."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Sight:
    """What a look found. `body` is None if there is no such deployment (any more)."""

    body: Json | None
    observed: Observed

    @property
    def uid(self) -> str | None:
        return str(self.body["metadata"]["uid"]) if self.body else None


async def sight(api: Api, key: Key, operator_namespace: str) -> Sight:
    """The deployment first, then what belongs to it: what is listed later is never older than the spec."""
    body = await api.get(AFD, key.namespace, key.name)
    selector = f"{labels.DEPLOYMENT}={names.stem(key.name)}"
    pods, leases, *children = await asyncio.gather(
        _all(api, POD, key.namespace, selector),
        _all(api, LEASE, operator_namespace, reservation.SELECTOR),
        *(_all(api, kind, key.namespace, selector) for kind in CHILDREN),
    )
    uid = body["metadata"]["uid"] if body else ""
    flat = [child for group in children for child in group]
    return Sight(body, look(uid, pods=pods, children=flat, leases=leases))


async def cluster(api: Api, reservations: tuple[Reservation, ...]) -> Cluster:
    """Nodes, and all pods of all namespaces that hold GPUs. Of each pod only what it holds is kept."""
    nodes, occupants = await asyncio.gather(_all(api, NODE, None, ""), _occupants(api))
    return Cluster(tuple(map(node_from_api, nodes)), occupants, reservations)


async def claim_exists(api: Api, deployment: AFDDeployment) -> bool:
    """The claim that holds the model is there; a source of another kind is not looked for here."""
    source = deployment.spec.model.pvc
    return source is None or await api.get(CLAIM, deployment.metadata.namespace, source.claim) is not None


async def _all(api: Api, kind: Kind, namespace: str | None, selector: str) -> list[Json]:
    return [item async for item in api.all(kind, namespace, labels=selector)]


async def _occupants(api: Api) -> tuple[Occupant, ...]:
    bound = api.all(POD, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
    return tuple([found async for pod in bound if (found := occupant_from_api(pod))])
