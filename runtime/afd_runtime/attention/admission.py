"""Is a plan possible on this lane? Answered before anything is changed, so a plan is applied whole or
not at all.

What a lane checks beyond the plan's own checks: it was told of the request before, positions join up,
tokens are in the vocabulary, reserved pages and places are there once the plan's frees are done.
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_runtime.attention.limits import LaneLimits
from afd_runtime.attention.table import RequestTable
from afd_runtime.protocol.plan import SequenceWork, StepPlan


class PlanRefused(ValueError):
    """The plan cannot be run here; the message names the request and both values."""


@dataclass(frozen=True)
class Admission:
    """What the table must do before the step: first the releases, then the admissions."""

    release: list[str]
    admit: list[SequenceWork]


def admission(plan: StepPlan, table: RequestTable, limits: LaneLimits, vocab: int) -> Admission:
    """Raises PlanRefused; changes nothing. Frees of requests that are not here are no error: the
    plan that carries them may be sent again after an abort."""
    if plan.bucket > limits.max_rows:
        raise PlanRefused(f"step {plan.step}: bucket {plan.bucket}, the buffers hold {limits.max_rows} rows")
    release = {name for name, attempt in plan.free if table.find(name, attempt) is not None}
    admit: list[SequenceWork] = []
    for work in (work for works in plan.microbatches for work in works):
        _check_tokens(work, vocab)
        if work.sampling is None:
            _check_continues(work, table, release)
            continue
        _check_first(work, table, limits)
        if table.attempt_of(work.request_id) is not None:
            release.add(work.request_id)
        admit.append(work)
    _check_fits(plan, table, limits, release, admit)
    return Admission(sorted(release), admit)


def _check_tokens(work: SequenceWork, vocab: int) -> None:
    for token in work.tokens or ():
        if not 0 <= token < vocab:
            raise PlanRefused(f"request {work.request_id}: token {token}, the vocabulary has {vocab}")


def _check_first(work: SequenceWork, table: RequestTable, limits: LaneLimits) -> None:
    held = table.attempt_of(work.request_id)
    if held is not None and held > work.attempt:
        raise PlanRefused(f"request {work.request_id}: attempt {work.attempt} begins, attempt {held} is here")
    if work.start:
        raise PlanRefused(f"request {work.request_id}: its first work starts at {work.start}, not 0")
    if work.count > work.reserve or work.reserve > limits.context_length:
        raise PlanRefused(
            f"request {work.request_id}: {work.count} tokens, {work.reserve} positions reserved, "
            f"the context length is {limits.context_length}"
        )


def _check_continues(work: SequenceWork, table: RequestTable, released: set[str]) -> None:
    resident = table.find(work.request_id, work.attempt)
    if resident is None or work.request_id in released:
        raise PlanRefused(
            f"request {work.request_id} attempt {work.attempt} is not here "
            f"(held: attempt {table.attempt_of(work.request_id)})"
        )
    if work.start > resident.written:
        raise PlanRefused(
            f"request {work.request_id}: work starts at {work.start}, KV is written up to {resident.written}"
        )
    if work.tokens is None and work.start >= len(resident.tokens):
        raise PlanRefused(
            f"request {work.request_id}: no token was sampled for position {work.start}, "
            f"{len(resident.tokens)} are known"
        )
    if work.start + work.count > resident.room:
        raise PlanRefused(
            f"request {work.request_id}: work ends at {work.start + work.count}, "
            f"its pages hold {resident.room}"
        )


def _check_fits(
    plan: StepPlan, table: RequestTable, limits: LaneLimits, release: set[str], admit: list[SequenceWork]
) -> None:
    freed = sum(len(resident.pages) for resident in table if resident.request_id in release)
    pages, needed = table.pages.free + freed, sum(limits.pages_for(work.reserve) for work in admit)
    if needed > pages:
        raise PlanRefused(f"step {plan.step}: {needed} KV pages to reserve, {pages} are free")
    places = table.free_slots + len(release)
    if len(admit) > places:
        raise PlanRefused(f"step {plan.step}: {len(admit)} requests to admit, {places} places are free")
