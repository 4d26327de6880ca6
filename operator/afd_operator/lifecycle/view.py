"""One unit as a look found it, and the questions that decisions ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afd_operator.lifecycle.observed import Observed, PodState
from afd_operator.placement.reservation import Reservation
from afd_operator.resources.pods import Place
from afd_unit import labels, names, unitfile
from afd_unit.identity import Role
from afd_unit.report import UnitReport

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class UnitView:
    """`reservation` is the unit's domain; `more_reservations` are such as it should not have."""

    unit: int
    pods: tuple[PodState, ...] = ()
    reservation: Reservation | None = None
    more_reservations: tuple[Reservation, ...] = ()
    config: Json | None = None
    """Its ConfigMap."""
    report: UnitReport | None = None

    @property
    def exists(self) -> bool:
        """There is anything of it that would have to go."""
        return bool(self.pods or self.reservation or self.more_reservations or self.config)

    @property
    def bound(self) -> tuple[PodState, ...]:
        """Pods that have a node and stay."""
        return tuple(pod for pod in self.pods if pod.node and pod.lasting)

    @property
    def started(self) -> bool:
        """Its containers may run. Once no worker is left that could, the unit starts over as a whole."""
        return self.config is not None and any(pod.role is not Role.COORDINATOR for pod in self.bound)

    @property
    def own_places(self) -> frozenset[Place]:
        """The places of the unit by its own unit file, which may be older than the spec."""
        try:
            file = unitfile.decode((self.config or {})["data"]["unit.json"])
        except (KeyError, unitfile.UnitFileError):
            return frozenset(pod.place for pod in self.pods)
        attention, expert = (n // file.gpus_per_node for n in (file.attention_workers, file.expert_workers))
        return frozenset(
            [Place(Role.ATTENTION, index) for index in range(attention)]
            + [Place(Role.EXPERT, index) for index in range(expert)]
            + [Place(Role.COORDINATOR, 0)]
        )

    @property
    def serves(self) -> bool:
        """Started, and every pod of it is Ready. A coordinator is Ready only while the unit can step."""
        ready = {pod.place for pod in self.pods if pod.ready and pod.lasting}
        return self.started and self.own_places <= ready

    def outdated(self, revision: str, topology_key: str) -> bool:
        """Something of it is of another revision or another domain than it should be."""
        domain = self.reservation.domain if self.reservation else None
        marks = [(pod.revision, pod.domain) for pod in self.pods]
        if self.config is not None:
            notes = self.config["metadata"].get("annotations") or {}
            marks.append((notes.get(labels.REVISION, ""), notes.get(labels.DOMAIN, "")))
        return any(mark != (revision, domain) for mark in marks) or (
            bool(marks) and self.reservation is not None and self.reservation.topology_key != topology_key
        )


def view(unit: int, observed: Observed, name: str, owner_uid: str) -> UnitView:
    """Unit `unit` of the deployment called `name`."""
    pods = tuple(sorted((p for p in observed.pods if p.unit == unit), key=lambda p: p.place))
    domains = {pod.domain for pod in pods}
    held = sorted(
        (
            reservation
            for reservation in observed.reservations
            if reservation.holder.id.deployment_uid == owner_uid and reservation.holder.id.unit == unit
        ),
        # Where its pods are comes first: a second record can only be left over.
        key=lambda reservation: (reservation.domain not in domains, reservation.domain),
    )
    return UnitView(
        unit=unit,
        pods=pods,
        reservation=held[0] if held else None,
        more_reservations=tuple(held[1:]),
        config=observed.children.get(("ConfigMap", names.unit(name, unit))),
        report=observed.reports.get(unit),
    )
