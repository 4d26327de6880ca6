"""AFDDeploymentSpec: the parts together, and the rules between them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel
from afd_operator.api.placement import Placement
from afd_operator.api.policies import FailurePolicy, Scaling, Update
from afd_operator.api.rules import Rule
from afd_operator.api.runtime import Runtime
from afd_operator.api.serving import Model, Slo, Workload
from afd_operator.api.shape import MAX_UNITS, Choice, Ratio, SmBudget


class AFDDeploymentSpec(ApiModel):
    """What is to be served, how much of it, where and how. Only `model` and `runtime.image` are required; the
    rest defaults to one unit of one attention and one expert node."""

    rules = (
        Rule(
            cel="self.ratio.mode != 'Auto' || has(self.workload)",
            holds=lambda s: s.ratio.mode is not Choice.AUTO or s.workload is not None,
            field="workload",
            message="is required when ratio.mode is Auto: it is what the planner plans for",
        ),
        Rule(
            cel="!has(self.workload) || "
            "self.workload.inputTokens + self.workload.outputTokens <= self.model.contextLength",
            holds=lambda s: (
                s.workload is None
                or s.workload.input_tokens + s.workload.output_tokens <= s.model.context_length
            ),
            field="workload.inputTokens",
            message="plus workload.outputTokens must not be greater than model.contextLength",
        ),
        Rule(
            cel="!has(self.scaling) || !has(self.ratio.attention) || "
            "(self.ratio.attention >= self.scaling.attention.min && "
            "self.ratio.attention <= self.scaling.attention.max)",
            holds=lambda s: (
                s.scaling is None
                or s.ratio.attention is None
                or s.scaling.attention.min <= s.ratio.attention <= s.scaling.attention.max
            ),
            field="ratio.attention",
            message="must lie between scaling.attention.min and scaling.attention.max",
        ),
        Rule(
            cel="!has(self.scaling) || !has(self.ratio.prefill) || "
            "self.ratio.prefill < self.scaling.attention.min",
            holds=lambda s: (
                s.scaling is None or s.ratio.prefill is None or s.ratio.prefill < s.scaling.attention.min
            ),
            field="scaling.attention.min",
            message="must be greater than ratio.prefill: at least one attention node has to decode",
        ),
        Rule(
            cel="!has(self.runtime.podTemplate.spec.nodeSelector) || "
            "!(self.placement.topologyKey in self.runtime.podTemplate.spec.nodeSelector)",
            holds=lambda s: s.placement.topology_key not in s.runtime.pod_template.spec.node_selector,
            field="runtime.podTemplate.spec.nodeSelector",
            message="must not name placement.topologyKey: the operator chooses the domain, see "
            "placement.domainSelector",
        ),
    )

    model: Model
    """Which checkpoint is served."""

    units: Annotated[int, Field(ge=0, le=MAX_UNITS)] = 1
    """Copies of the model. The number behind the scale subresource; 0 holds no GPU."""

    ratio: Ratio = Ratio(attention=1, expert=1)
    """Nodes per role in each unit. Defaults to the smallest unit, 1 : 1."""

    microbatches: Annotated[int, Field(ge=1, le=4)] = 2
    """Slices of a step's batch that attention and experts work on in turns. 2 is the least at which either
    side can work while the other's result travels; 1 makes them wait for one another."""

    sm_budget: SmBudget = SmBudget(mode=Choice.AUTO)
    """Streaming multiprocessors set aside on attention and expert GPUs."""

    slo: Slo | None = None
    """The service level that requests are held to."""

    workload: Workload | None = None
    """The load to plan for; required by `ratio.mode: Auto`."""

    placement: Placement = Placement()
    """Where units run."""

    scaling: Scaling | None = None
    """Scaling of attention nodes inside a unit; absent: the ratio stays as it is."""

    failure_policy: FailurePolicy = FailurePolicy()
    """What is given up when something of a unit fails."""

    update: Update = Update()
    """How a changed spec reaches running units."""

    runtime: Runtime
    """With which containers units run."""
