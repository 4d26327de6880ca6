"""The domains of a cluster as one unit sees them: how many nodes, how many could serve, how many are free.

    nodes    carry the topology label and match the deployment's selectors
    usable   and have enough GPUs, and no taint that stays keeps the unit's pods away
    free     and are Ready, not cordoned, untainted for these pods, with enough GPUs not taken by others

A pod takes all `gpus_per_node` of a node, so a node with one GPU too few is not free at all.
`usable` ignores what passes by itself or with a repair (NotReady, cordon, pressure): it says whether
waiting can help, `free` says whether there is room now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afd_operator.api.placement import NodeSelector
from afd_operator.placement.facts import Node, Occupant, UnitId, taken
from afd_operator.placement.reservation import Holder, Reservation
from afd_operator.placement.scheduling import Toleration, tolerated


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a choice depends on, read live and all at once."""

    nodes: tuple[Node, ...]
    occupants: tuple[Occupant, ...]
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Room for one unit: `attention + expert` pods of `gpus_per_node` GPUs, and spare nodes beside them."""

    unit: UnitId
    topology_key: str
    attention: int
    expert: int
    spares: int = 0
    gpus_per_node: int
    domain_selector: NodeSelector = field(default_factory=NodeSelector)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()

    @property
    def pods(self) -> int:
        return self.attention + self.expert

    @property
    def needed(self) -> int:
        """Nodes that a domain must have free before the unit goes there."""
        return self.pods + self.spares


@dataclass(frozen=True, slots=True)
class DomainView:
    """One domain in numbers of nodes; `held_by` is another unit's reservation, None if it can be taken."""

    name: str
    nodes: int
    usable: int
    free: int
    held_by: Holder | None = None


def views(cluster: Cluster, request: Request) -> tuple[DomainView, ...]:
    """Every domain that the request's selectors admit, by name."""
    used = taken(cluster.occupants, but=request.unit)
    holders = {
        reservation.domain: reservation.holder
        for reservation in cluster.reservations
        if reservation.topology_key == request.topology_key and reservation.holder.id != request.unit
    }
    members: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        name = node.labels.get(request.topology_key)
        if name and _admitted(node, request):
            members.setdefault(name, []).append(node)
    return tuple(
        DomainView(
            name=name,
            nodes=len(nodes),
            usable=sum(_usable(node, request) for node in nodes),
            free=sum(_free(node, request, used.get(node.name, 0)) for node in nodes),
            held_by=holders.get(name),
        )
        for name, nodes in sorted(members.items())
    )


def _admitted(node: Node, request: Request) -> bool:
    return request.domain_selector.selects(node.labels) and all(
        node.labels.get(key) == value for key, value in request.node_selector.items()
    )


def _usable(node: Node, request: Request) -> bool:
    staying = (taint for taint in node.taints if not taint.passing)
    return node.gpus >= request.gpus_per_node and tolerated(staying, request.tolerations)


def _free(node: Node, request: Request, used: int) -> bool:
    return (
        node.ready
        and node.schedulable
        and node.gpus - used >= request.gpus_per_node
        and tolerated(node.taints, request.tolerations)
    )
