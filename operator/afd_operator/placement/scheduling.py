"""Whether a pod may run on a node: taints and tolerations, by the scheduler's rules (Kubernetes
documentation, "Taints and Tolerations")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LIFECYCLE_TAINTS = "node.kubernetes.io/"
"""Prefix of the taints that the control plane sets and lifts as a node's condition changes."""

_REPELLING = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""

    @property
    def passing(self) -> bool:
        """True for a taint that comes and goes with the node's health (cordoned, not ready, pressure)."""
        return self.key.startswith(LIFECYCLE_TAINTS)


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty key with `Exists` tolerates every taint, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


def tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """True if no taint keeps a pod with these tolerations away (PreferNoSchedule never does)."""
    accepted = tuple(tolerations)
    return all(
        any(toleration.tolerates(taint) for toleration in accepted)
        for taint in taints
        if taint.effect in _REPELLING
    )
