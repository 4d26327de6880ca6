"""What one look came to: the units with their plans, and the facts that a status is written from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.policies import UpdateStrategy
from afd_operator.api.status import UnitStage
from afd_operator.api.unsupported import NotActedOn
from afd_operator.lifecycle.observed import Refusal
from afd_operator.lifecycle.unit import UnitPlan
from afd_operator.lifecycle.view import UnitView
from afd_unit.identity import Role


@dataclass(frozen=True)
class UnitOutcome:
    """One unit: what was found, what is done. `wanted` is False for one above `spec.units`."""

    view: UnitView
    plan: UnitPlan
    wanted: bool

    @property
    def index(self) -> int:
        return self.view.unit

    def nodes(self, role: Role) -> int:
        """Nodes that pods of this role hold."""
        return sum(pod.role is role for pod in self.view.bound)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    deployment: AFDDeployment
    units: tuple[UnitOutcome, ...]
    gateways_ready: int
    not_acted_on: tuple[NotActedOn, ...]
    refusals: tuple[Refusal, ...]
    now: datetime

    @property
    def wanted(self) -> tuple[UnitOutcome, ...]:
        return tuple(unit for unit in self.units if unit.wanted)

    @property
    def blocking(self) -> tuple[NotActedOn, ...]:
        """Fields without which a unit would not be what was asked for."""
        return tuple(entry for entry in self.not_acted_on if entry.blocks)

    @property
    def serving(self) -> tuple[UnitOutcome, ...]:
        """Units that serve what the spec says; with OnDelete, an earlier spec will do."""
        strategy = self.deployment.spec.update.strategy
        return tuple(
            unit
            for unit in self.wanted
            if unit.plan.stage is UnitStage.READY
            and (not unit.plan.outdated or strategy is UpdateStrategy.ON_DELETE)
        )

    def troubles(self) -> Iterator[str]:
        """What units wait for, in words."""
        for unit in self.units:
            if unit.plan.message and unit not in self.serving:
                yield f"unit {unit.index}: {unit.plan.message}"
