"""Conditions of an AFDDeployment (kstatus), and how they are carried from one status to the next.

Ready, DomainSelected, FabricReady, RatioSatisfied, FFNHidden and SpecActedOn are good when True; Reconciling,
Stalled, Degraded and Failed are bad when True.

They are computed from what is observed now, never latched: a status holds what one reconcile saw, and only
the time of a condition's last change is taken from the status before.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import StatusModel
from afd_operator.api.scalars import LABEL_KEY, Time

MESSAGE_LIMIT = 4096


class ConditionType(StrEnum):
    READY = "Ready"
    """All units that the spec asks for serve."""
    RECONCILING = "Reconciling"
    """The operator is working towards the spec. Present only while True."""
    STALLED = "Stalled"
    """The operator cannot go on without someone's help. Present only while True."""
    DOMAIN_SELECTED = "DomainSelected"
    """Every unit has its NVLink domain."""
    FABRIC_READY = "FabricReady"
    """The fabric that the spec asks for is up."""
    RATIO_SATISFIED = "RatioSatisfied"
    """Every unit has all of its attention and expert nodes."""
    FFN_HIDDEN = "FFNHidden"
    """Expert time is hidden behind attention time. Unknown until steps have been measured."""
    DEGRADED = "Degraded"
    """Units serve with less than the spec asks for."""
    FAILED = "Failed"
    """The restart budget is spent."""
    SPEC_ACTED_ON = "SpecActedOn"
    """This version of the operator acts on every field that is set. False names those it does not act on."""


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One condition (metav1.Condition)."""

    type: Annotated[str, Field(min_length=1, max_length=316, pattern=LABEL_KEY)]
    """Which condition."""

    status: ConditionStatus
    """Whether it holds."""

    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9])?$")
    ]
    """Why, for machines: one CamelCase word."""

    message: Annotated[str, Field(max_length=MESSAGE_LIMIT)] = ""
    """Why, for people, with the numbers."""

    observed_generation: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Generation of the spec that was looked at."""

    last_transition_time: Time | None = None
    """When `status` last changed."""


def condition(kind: ConditionType, status: bool | None, reason: str, message: str = "") -> Condition:
    """A condition as one reconcile finds it; `None` is Unknown. A message past the limit is cut visibly."""
    if len(message) > MESSAGE_LIMIT:
        message = f"{message[: MESSAGE_LIMIT - 4]} ..."
    word = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}[status]
    return Condition(type=kind, status=word, reason=reason, message=message)


def carry_over(
    before: Iterable[Condition], found: Iterable[Condition], *, generation: int, now: datetime
) -> list[Condition]:
    """`found`, stamped: with the generation, and with the time of `before` wherever the status is the same.

    What was there before and is not found now is gone. So the same findings give the same list, and a status
    that did not change is not written again.
    """
    since = {(c.type, c.status): c.last_transition_time for c in before}
    return [
        c.model_copy(
            update={
                "observed_generation": generation,
                "last_transition_time": since.get((c.type, c.status)) or now,
            }
        )
        for c in found
    ]
