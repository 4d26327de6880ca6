"""What the coordinator says, made from what it knows. One function a message."""

from __future__ import annotations

from collections.abc import Iterable

from afd_runtime.coordinator.admission import Limits
from afd_runtime.coordinator.members import Seat
from afd_runtime.coordinator.requests import Request
from afd_runtime.coordinator.steps import Step
from afd_runtime.protocol.messages import MemberEntry, Rejected, Table, Tokens, Welcome
from afd_runtime.protocol.plan import ExpertStep, StepPlan
from afd_unit.identity import Role
from afd_unit.unitfile import UnitFile


def table(epoch: int, seats: Iterable[Seat], data_key: bytes, committed_step: int) -> Table:
    return Table(
        epoch=epoch,
        members=[
            MemberEntry(member=seat.member, incarnation=seat.incarnation, data_address=seat.data_address)
            for seat in seats
        ],
        data_key=data_key,
        committed_step=committed_step,
    )


def plan(epoch: int, step: Step, seat: Seat, sent_ns: int) -> StepPlan | ExpertStep:
    """The one command that a worker gets for a step."""
    if seat.member.role is Role.EXPERT:
        return ExpertStep(
            epoch=epoch,
            step=step.number,
            phase=step.phase,
            bucket=step.bucket,
            microbatches=step.microbatches,
            sent_ns=sent_ns,
        )
    share = step.shares[seat.member.index]
    return StepPlan(
        epoch=epoch,
        step=step.number,
        phase=step.phase,
        bucket=step.bucket,
        microbatches=[[work for _, work in batch] for batch in share.microbatches],
        free=share.frees,
        sent_ns=sent_ns,
    )


def welcome(unit: UnitFile, epoch: int, incarnation: int, limits: Limits | None, *, serving: bool) -> Welcome:
    return Welcome(
        epoch=epoch,
        model_id=unit.model.id,
        context_length=unit.model.context_length,
        serving=serving,
        incarnation=incarnation,
        capacity_tokens=limits.capacity_tokens if limits else 0,
    )


def tokens(request: Request, first: int, new: list[int], finish_reason: str | None) -> Tokens:
    return Tokens(
        request_id=request.id,
        attempt=request.attempt,
        first=first,
        tokens=new,
        finish_reason=finish_reason,
    )


def failed(request: Request, cause: str) -> Rejected:
    return Rejected(
        request_id=request.id,
        attempt=request.attempt,
        reason="failed",
        text=f"every step that ran this request ended without a result, at last by: {cause}",
    )
