"""What happens over time: scaling inside a unit, failures, updates."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel
from afd_operator.api.rules import Rule
from afd_operator.api.scalars import Duration
from afd_operator.api.shape import NodeCount


class ScalingPolicy(StrEnum):
    FFN_SLACK = "FFNSlack"
    """The measured slack (T_a - T_e) / T_a: the largest M that keeps experts hidden by the target."""


class Bounds(ApiModel):
    """Least and most nodes of a role."""

    rules = (
        Rule(
            cel="self.min <= self.max",
            holds=lambda b: b.min <= b.max,
            field="min",
            message="must not be greater than max",
        ),
    )

    min: NodeCount
    """Least nodes."""

    max: NodeCount
    """Most nodes."""


class Scaling(ApiModel):
    """Scaling of M inside a unit. Whole units are scaled by `units` (the scale subresource)."""

    attention: Bounds
    """Bounds of M, the attention nodes of a unit."""

    policy: ScalingPolicy = ScalingPolicy.FFN_SLACK
    """What M follows."""

    target_slack: Annotated[float, Field(ge=0, le=0.9)] = 0.1
    """Slack to keep: 0.1 leaves experts a tenth of the attention time as margin."""


class WorkerFailure(StrEnum):
    REPLACE_POD = "ReplacePod"
    """The pod is replaced in the same domain, the rest of the unit stays."""
    RESTART_UNIT = "RestartUnit"
    """All pods of the unit are replaced."""


class DomainFailure(StrEnum):
    RELOCATE = "Relocate"
    """The whole unit moves to another domain."""
    HOLD = "Hold"
    """The unit stays, Degraded, until the domain is whole again."""


class RestartBudget(ApiModel):
    """How often the operator tries again before it says Failed."""

    rules = (
        Rule(
            cel="duration(self.window) >= duration('1m') && duration(self.window) <= duration('168h')",
            holds=lambda b: timedelta(minutes=1) <= b.window <= timedelta(hours=168),
            field="window",
            message="must be between 1m and 168h",
        ),
    )

    restarts: Annotated[int, Field(ge=0, le=1000)] = 5
    """Restarts of a unit or its pods within the window that are taken as bad luck. The next one is Failed."""

    window: Duration = timedelta(hours=1)
    """Length of the sliding window in which restarts count."""


class FailurePolicy(ApiModel):
    """What is given up when something of a unit fails. Gateways and coordinators are always just replaced."""

    attention: WorkerFailure = WorkerFailure.REPLACE_POD
    """Loss of an attention pod. When it is replaced, its requests are replayed on other lanes."""

    expert: WorkerFailure = WorkerFailure.REPLACE_POD
    """Loss of an expert pod. While it is replaced, steps pause, the KV cache stays, requests are held."""

    domain: DomainFailure = DomainFailure.RELOCATE
    """Loss of the NVLink domain: label gone, fabric error, too few nodes."""

    restart_budget: RestartBudget = RestartBudget()
    """How often the operator tries again before it says Failed."""


class UpdateStrategy(StrEnum):
    IN_PLACE_UNIT = "InPlaceUnit"
    """One unit at a time is drained and made anew on its own domain. Needs no spare domain."""
    BLUE_GREEN_DOMAIN = "BlueGreenDomain"
    """The new unit comes up on a second domain before the old one goes."""
    ON_DELETE = "OnDelete"
    """A unit takes the new spec when all its pods have been deleted by hand."""


class Update(ApiModel):
    """How a changed spec reaches running units. Versions are never mixed inside a unit."""

    strategy: UpdateStrategy = UpdateStrategy.IN_PLACE_UNIT
    """How a unit is replaced."""
