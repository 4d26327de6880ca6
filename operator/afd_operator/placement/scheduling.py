"""Whether a pod may run on a node: taints and tolerations, label selectors.

The rules are those of the scheduler (Kubernetes documentation, "Taints and Tolerations" and
"Labels and Selectors"), restricted to what a domain's choice depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a label selector. A missing label satisfies NotIn and DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case _:
                raise ValueError(f"{self.operator!r} is no operator of a label selector")


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: all labels equal and all expressions true. The empty one matches everything."""

    labels: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            requirement.matches(labels) for requirement in self.expressions
        )
