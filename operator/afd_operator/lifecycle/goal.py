"""What a unit is measured against: what the spec wants of it, and what it may do now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from afd_operator.api.deployment import AFDDeployment
from afd_operator.placement.domains import Cluster, Request
from afd_operator.placement.facts import UnitId
from afd_operator.placement.reservation import Holder, Reservation, lease_name
from afd_operator.placement.scheduling import Toleration
from afd_operator.resources.pods import Place, places, tolerations
from afd_operator.resources.revision import revision


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The same for all units of a deployment, but for `cluster`: what one takes, the next cannot have."""

    deployment: AFDDeployment
    revision: str
    places: tuple[Place, ...]
    status_reader: str
    """The operator's account, `namespace/name`."""
    now: datetime
    cluster: Cluster | None
    claim_exists: bool
    names_taken: frozenset[str]
    """Names of pods that a deleted namesake has not given up yet."""

    def holder(self, unit: int) -> Holder:
        metadata = self.deployment.metadata
        return Holder(metadata.namespace, metadata.name, UnitId(metadata.uid, unit))

    def request(self, unit: int) -> Request:
        """The room that one unit needs."""
        spec = self.deployment.spec
        return Request(
            unit=UnitId(self.deployment.metadata.uid, unit),
            topology_key=spec.placement.topology_key,
            attention=spec.ratio.attention or 0,
            expert=spec.ratio.expert or 0,
            spares=spec.placement.spares,
            gpus_per_node=spec.placement.gpus_per_node,
            domain_selector=spec.placement.domain_selector,
            node_selector=spec.runtime.pod_template.spec.node_selector,
            tolerations=tuple(
                Toleration(
                    key=t.get("key", ""),
                    operator=t.get("operator", "Equal"),
                    value=t.get("value", ""),
                    effect=t.get("effect", ""),
                )
                for t in tolerations(spec)
            ),
        )

    def reserved(self, unit: int, domain: str) -> Reservation:
        """The reservation of `domain` as it will be, once it is taken."""
        key = self.deployment.spec.placement.topology_key
        return Reservation(key, domain, self.holder(unit), lease_name(key, domain), lease_uid="")

    def having(self, reservation: Reservation) -> Goal:
        """The goal of the next unit, after a unit has taken `reservation` in the same plan."""
        if self.cluster is None:
            return self
        taken = (*self.cluster.reservations, reservation)
        return replace(self, cluster=replace(self.cluster, reservations=taken))


def goal(
    deployment: AFDDeployment,
    *,
    status_reader: str,
    now: datetime,
    cluster: Cluster | None,
    claim_exists: bool,
    names_taken: frozenset[str],
) -> Goal:
    return Goal(
        deployment=deployment,
        revision=revision(deployment.spec),
        places=tuple(places(deployment.spec)),
        status_reader=status_reader,
        now=now,
        cluster=cluster,
        claim_exists=claim_exists,
        names_taken=names_taken,
    )
