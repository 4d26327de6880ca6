"""The reservation of a domain: one coordination.k8s.io Lease in the operator's namespace.

    take     = create          (the API server answers 409 to everyone but the first)
    release  = delete          (with the uid that we took as precondition)

The Lease's name is a function of the topology label and the domain's value, so two units that want
one domain meet at one name. The Lease says who holds it; it is never renewed, because a holder is
gone when its AFDDeployment and its pods are, not when a clock says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afd_operator.placement.facts import UnitId, unit_of
from afd_unit import labels

SELECTOR = f"{labels.RESERVATION}=domain"
"""Label selector of all reservations."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The unit that a domain is reserved for."""

    namespace: str
    name: str
    id: UnitId

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.id.unit}"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A domain and who holds it; `lease` and `lease_uid` name the record, so that exactly it is deleted."""

    topology_key: str
    domain: str
    holder: Holder
    lease: str
    lease_uid: str


def lease_name(topology_key: str, domain: str) -> str:
    """Legal for every label value, different for every (key, value): readable part and 64 hash bits."""
    digest = hashlib.sha256(f"{topology_key}={domain}".encode()).hexdigest()[:16]
    readable = re.sub(r"[^a-z0-9]+", "-", domain.lower())[:36].strip("-")
    return f"afd-domain-{readable}-{digest}" if readable else f"afd-domain-{digest}"


def to_lease(topology_key: str, domain: str, holder: Holder, namespace: str) -> dict[str, Any]:
    """The Lease whose creation takes `domain` for `holder`."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(topology_key, domain),
            "namespace": namespace,
            "labels": {
                labels.MANAGED_BY: labels.MANAGER,
                labels.RESERVATION: "domain",
                labels.DEPLOYMENT_UID: holder.id.deployment_uid,
                labels.UNIT: str(holder.id.unit),
            },
            "annotations": {
                labels.TOPOLOGY_KEY: topology_key,
                labels.DOMAIN: domain,
                labels.DEPLOYMENT_NAME: f"{holder.namespace}/{holder.name}",
            },
        },
        # Shown by `kubectl get leases` as HOLDER.
        "spec": {"holderIdentity": str(holder)},
    }


def from_lease(body: Mapping[str, Any]) -> Reservation | None:
    """The mirror image of `to_lease`; None for a Lease that somebody stripped of what identifies it."""
    annotations = body["metadata"].get("annotations") or {}
    unit = unit_of(body)
    namespace, _, name = annotations.get(labels.DEPLOYMENT_NAME, "").partition("/")
    if unit is None or not name or labels.DOMAIN not in annotations or labels.TOPOLOGY_KEY not in annotations:
        return None
    return Reservation(
        topology_key=annotations[labels.TOPOLOGY_KEY],
        domain=annotations[labels.DOMAIN],
        holder=Holder(namespace, name, unit),
        lease=body["metadata"]["name"],
        lease_uid=body["metadata"]["uid"],
    )
