"""AFDDeploymentStatus: what the operator reports. Columns of `kubectl get` are strings made for reading."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import StatusModel, list_map
from afd_operator.api.conditions import Condition
from afd_operator.api.shape import MAX_NODES, MAX_UNITS
from afd_unit.report import UnitState

Count = Annotated[int, Field(ge=0, le=2_147_483_647)]
Number64 = Annotated[int, Field(ge=0, le=2**53)]
"""Exact in JSON."""
Short = Annotated[str, Field(max_length=64)]


class UnitStage(StrEnum):
    """How far the operator has brought a unit (`afd_operator.lifecycle` draws the way)."""

    PENDING = "Pending"
    """No domain is reserved for it and nothing of it runs."""
    RESERVED = "Reserved"
    """A domain is reserved; its pods are being made, gated."""
    GATED = "Gated"
    """All of its pods exist and wait at the gate."""
    RELEASED = "Released"
    """The scheduler may bind its pods to nodes; no container starts before all are bound."""
    STARTED = "Started"
    """Its containers start."""
    READY = "Ready"
    """All of its pods are Ready: it serves."""
    BROKEN = "Broken"
    """It has started and lacks a pod or a container; that is being replaced."""
    STOPPING = "Stopping"
    """Its pods are going."""


class Plan(StatusModel):
    """What each unit is made of, after the planner had its say."""

    ratio: Short
    """M:N, like 7:1."""

    attention: Annotated[int, Field(ge=1, le=MAX_NODES)]
    """Attention nodes per unit."""

    expert: Annotated[int, Field(ge=1, le=MAX_NODES)]
    """Expert nodes per unit."""

    prefill: Annotated[int, Field(ge=0, le=MAX_NODES)] = 0
    """Attention nodes that do prefill only."""

    gpus: Count
    """GPUs per unit."""

    microbatches: Annotated[int, Field(ge=1, le=4)]
    """Slices of a step's batch."""


class Observed(StatusModel):
    """What units measure now, the slowest of them where they differ."""

    step_time: Short | None = None
    """Wall time of a decode step, like 12.4ms."""

    ffn_slack: Short | None = None
    """(T_a - T_e) / T_a in percent, like 12%; negative: experts slow every request."""

    tokens_per_second: Count | None = None
    """Output tokens per second of all units."""


class UnitStatus(StatusModel):
    """One unit."""

    unit: Annotated[int, Field(ge=0, lt=MAX_UNITS)]
    """Index of the unit."""

    stage: UnitStage
    """How far the operator has brought the unit."""

    state: UnitState | None = None
    """What the unit is doing, in the words of its coordinator; absent while that does not answer."""

    domain: Annotated[str, Field(max_length=63)] | None = None
    """Value of the topology label of the domain that is reserved for it."""

    epoch: Number64 | None = None
    """Number of the member table in force, from its coordinator."""

    pods: Count = 0
    """Pods of the unit that exist, with its coordinator."""

    ready_pods: Count = 0
    """Those of them that are Ready."""

    revision: Short | None = None
    """Hash of what its pods are made from; one for all of them."""

    step_time: Short | None = None
    """Wall time of a decode step, like 12.4ms."""

    ffn_slack: Short | None = None
    """(T_a - T_e) / T_a in percent."""

    message: Annotated[str, Field(max_length=1024)] | None = None
    """What the unit waits for, in words."""


class AFDDeploymentStatus(StatusModel):
    """What the operator reports."""

    observed_generation: Number64 | None = None
    """Generation of the spec that this status is about."""

    units: Count = 0
    """Units that hold a domain. The number behind the scale subresource."""

    ready_units: Count = 0
    """Units that serve."""

    ready: Short | None = None
    """Units that serve of those asked for, like 1/2 (column READY)."""

    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods of all units, for the scale subresource."""

    domain: Annotated[str, Field(max_length=253)] | None = None
    """Domains of the units, in the order of units; shortened where they are many (column DOMAIN)."""

    conditions: Annotated[list[Condition], list_map("type", max_items=32)] = []
    """What holds now; see docs/api.md for the types."""

    plan: Plan | None = None
    """What each unit is made of."""

    observed: Observed | None = None
    """What units measure now."""

    unit_statuses: Annotated[list[UnitStatus], list_map("unit", max_items=MAX_UNITS)] = []
    """Each unit."""
