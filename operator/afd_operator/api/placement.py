"""Where units run: which label makes an NVLink domain, which domains may be taken, and who binds the pods."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel, bounded_map
from afd_operator.api.rules import Rule
from afd_operator.api.scalars import LabelKey, LabelValue, SubdomainName
from afd_unit import labels


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(ApiModel):
    """One requirement on a node's labels."""

    rules = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            holds=lambda r: (r.operator in (SelectorOperator.IN, SelectorOperator.NOT_IN)) == bool(r.values),
            field="values",
            message="must be given for In and NotIn, and left out for Exists and DoesNotExist",
        ),
    )

    key: LabelKey
    """Label that is looked at."""

    operator: SelectorOperator
    """How the label is compared with `values`."""

    values: Annotated[list[LabelValue], Field(max_length=64)] = []
    """Values for `In` and `NotIn`."""

    def met_by(self, node_labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels meets the requirement (semantics of metav1.LabelSelector)."""
        match self.operator:
            case SelectorOperator.IN:
                return node_labels.get(self.key) in self.values
            case SelectorOperator.NOT_IN:
                return node_labels.get(self.key) not in self.values
            case SelectorOperator.EXISTS:
                return self.key in node_labels
            case SelectorOperator.DOES_NOT_EXIST:
                return self.key not in node_labels


class NodeSelector(ApiModel):
    """Nodes by their labels; empty selects all."""

    match_labels: Annotated[dict[str, LabelValue], bounded_map(max_items=32)] = {}
    """Labels with the value that a node must have."""

    match_expressions: Annotated[list[Requirement], Field(max_length=32)] = []
    """Requirements that a node's labels must meet, all of them."""

    def selects(self, node_labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is selected."""
        return all(node_labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.met_by(node_labels) for requirement in self.match_expressions
        )


class Sharing(StrEnum):
    EXCLUSIVE = "Exclusive"
    """A domain belongs to one unit, also where another would fit beside it."""
    SHARED = "Shared"
    """Units may share a domain, each on nodes of its own."""


class Fabric(StrEnum):
    NONE = "None"
    """Nothing is set up: pods reach one another by network, or by what the nodes offer already."""
    COMPUTE_DOMAIN = "ComputeDomain"
    """One ComputeDomain (resource.nvidia.com) per unit: memory of all its GPUs is shared by NVLink."""


class SchedulerBackend(StrEnum):
    GATES = "Gates"
    """The operator chooses the domain and holds pods by a scheduling gate until all of a unit's exist."""
    POD_GROUP = "PodGroup"
    """The scheduler places a unit as one PodGroup."""


class Scheduler(ApiModel):
    """Who binds a unit's pods to nodes."""

    name: SubdomainName = "default-scheduler"
    """`schedulerName` of a unit's pods."""

    backend: SchedulerBackend = SchedulerBackend.GATES
    """How a unit is placed whole or not at all."""


class Placement(ApiModel):
    """Where units run."""

    topology_key: LabelKey = labels.CLIQUE
    """Node label whose value names a node's NVLink domain. A unit never spans two values."""

    gpus_per_node: Annotated[int, Field(ge=1, le=16)] = 4
    """GPUs of a node; a worker pod takes all of them. GB200 and GB300 NVL72 nodes have 4, HGX nodes 8."""

    sharing: Sharing = Sharing.EXCLUSIVE
    """Whether a domain may hold more than one unit."""

    spares: Annotated[int, Field(ge=0, le=16)] = 0
    """Nodes of the domain kept free per unit, to replace a lost one without moving the unit."""

    domain_selector: NodeSelector = NodeSelector()
    """Only nodes with these labels count as nodes of a domain."""

    fabric: Fabric = Fabric.NONE
    """What is set up so that the unit's GPUs reach one another's memory."""

    scheduler: Scheduler = Scheduler()
    """Who binds a unit's pods to nodes."""
