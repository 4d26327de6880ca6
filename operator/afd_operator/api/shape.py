"""How much of what: the ratio of attention to expert nodes, and the SM budget on their GPUs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel
from afd_operator.api.rules import Rule

MAX_UNITS = 1000
"""Unit indices have three digits in children's names (`afd_unit.names.LONGEST_SUFFIX`)."""
MAX_NODES = 576
"""Nodes per role. Far above any NVLink domain known (NVL72: 18 nodes, NVL576: 144); what fits is the
domain's business, this bound only keeps objects small."""

CLUSTER_SIZE = 2
"""CTAs of one cluster of the expert and boundary kernels (multicast pairs): budgets come in its multiples."""
MAX_SMS = 512
"""Above every GPU on sale (B300: 160)."""

NodeCount = Annotated[int, Field(ge=1, le=MAX_NODES)]
SmCount = Annotated[int, Field(ge=CLUSTER_SIZE, le=MAX_SMS, multiple_of=CLUSTER_SIZE)]


class Choice(StrEnum):
    """Who chooses the numbers beside a `mode`: the user (they are given) or the planner (none may be)."""

    FIXED = "Fixed"
    AUTO = "Auto"


class Ratio(ApiModel):
    """Nodes per role in each unit, M attention : N expert."""

    rules = (
        Rule(
            cel="self.mode != 'Fixed' || has(self.attention)",
            holds=lambda r: r.mode is not Choice.FIXED or r.attention is not None,
            field="attention",
            message="is required unless ratio.mode is Auto",
        ),
        Rule(
            cel="self.mode != 'Fixed' || has(self.expert)",
            holds=lambda r: r.mode is not Choice.FIXED or r.expert is not None,
            field="expert",
            message="is required unless ratio.mode is Auto",
        ),
        Rule(
            cel="self.mode != 'Auto' || !(has(self.attention) || has(self.expert) || has(self.prefill))",
            holds=lambda r: (
                r.mode is not Choice.AUTO or (r.attention, r.expert, r.prefill) == (None, None, None)
            ),
            field="mode",
            message="Auto chooses attention, expert and prefill itself: leave them out, or set mode to Fixed",
        ),
        Rule(
            cel="!has(self.prefill) || !has(self.attention) || self.prefill < self.attention",
            holds=lambda r: r.prefill is None or r.attention is None or r.prefill < r.attention,
            field="prefill",
            message="must be less than ratio.attention: at least one attention node has to decode",
        ),
    )

    mode: Choice = Choice.FIXED
    """`Fixed`: as given here. `Auto`: chosen by the planner for `workload` and `slo`."""

    attention: NodeCount | None = None
    """M: nodes that run attention; each of their GPUs is a lane."""

    expert: NodeCount | None = None
    """N: nodes that run the experts."""

    prefill: Annotated[int, Field(ge=0, lt=MAX_NODES)] | None = None
    """How many of the attention nodes do prefill only. Absent or 0: all of them do both."""


class SmBudget(ApiModel):
    """Streaming multiprocessors set aside, per GPU."""

    rules = (
        Rule(
            cel="self.mode != 'Fixed' || has(self.boundary)",
            holds=lambda b: b.mode is not Choice.FIXED or b.boundary is not None,
            field="boundary",
            message="is required unless smBudget.mode is Auto",
        ),
        Rule(
            cel="self.mode != 'Fixed' || has(self.decode)",
            holds=lambda b: b.mode is not Choice.FIXED or b.decode is not None,
            field="decode",
            message="is required unless smBudget.mode is Auto",
        ),
        Rule(
            cel="self.mode != 'Auto' || !(has(self.boundary) || has(self.decode))",
            holds=lambda b: b.mode is not Choice.AUTO or (b.boundary, b.decode) == (None, None),
            field="mode",
            message="Auto chooses boundary and decode itself: leave them out, or set mode to Fixed",
        ),
    )

    mode: Choice = Choice.FIXED
    """`Fixed`: as given here. `Auto`: chosen by the planner or the runtime."""

    boundary: SmCount | None = None
    """SMs of an attention GPU that run dispatch and combine. Even: kernels launch clusters of two."""

    decode: SmCount | None = None
    """SMs of an expert GPU that decode may take while prefill waits. Even: kernels launch clusters of two."""
