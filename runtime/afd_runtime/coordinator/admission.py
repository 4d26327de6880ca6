"""May a request come in, and which lane takes it. By capacity only, never by hope: a request is
placed when its longest possible course fits, so a running request is never evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afd_runtime.coordinator.lanes import Lane
from afd_runtime.coordinator.requests import Request
from afd_runtime.protocol.messages import LaneCapacity, Rejected, Submit

MAX_WAITING = 1024
"""Requests that may wait for a lane. Their prompts are held in memory here."""
MIN_RETRY_S, MAX_RETRY_S = 1.0, 60.0


@dataclass(frozen=True)
class Limits:
    """What a request must keep to; known once a lane has registered, and kept when lanes go."""

    capacity_tokens: int
    """Most tokens (prompt + answer) of one request."""
    vocab_size: int
    eos_token_ids: tuple[int, ...]


def limits(context_length: int, capacities: Iterable[LaneCapacity]) -> Limits:
    """Of the largest lane: a request that fits it may have to wait for it."""
    lanes = list(capacities)
    return Limits(
        capacity_tokens=min(context_length, max(lane.kv_pages * lane.page_tokens for lane in lanes)),
        vocab_size=lanes[0].vocab_size,
        eos_token_ids=tuple(lanes[0].eos_token_ids),
    )


def retry_after_s(waiting: int, finished_per_s: float) -> float:
    """When the queue will have moved on by its present length at the present pace."""
    if finished_per_s <= 0:
        return MIN_RETRY_S
    return min(MAX_RETRY_S, max(MIN_RETRY_S, waiting / finished_per_s))


def rejected(submit: Submit, reason: str, text: str, retry_after_s: float | None = None) -> Rejected:
    return Rejected(
        request_id=submit.request_id,
        attempt=submit.attempt,
        reason=reason,
        text=text,
        retry_after_s=retry_after_s,
    )


def refusal(submit: Submit, known: Limits | None, *, waiting: int, finished_per_s: float) -> Rejected | None:
    """Why a request does not come in. A replay (attempt > 0) was let in once and is never turned
    away for want of room in the queue."""

    if known is None:
        return rejected(submit, "queue_full", "the unit is forming: no lane has registered yet", MIN_RETRY_S)
    if not submit.prompt:
        return rejected(submit, "invalid", "the prompt has no tokens")
    if submit.max_new_tokens < 1:
        return rejected(submit, "invalid", f"max_new_tokens is {submit.max_new_tokens}, must be at least 1")
    wrong = next(
        (token for token in (*submit.prompt, *submit.committed) if not 0 <= token < known.vocab_size), None
    )
    if wrong is not None:
        return rejected(
            submit, "invalid", f"token {wrong} is not within the vocabulary of {known.vocab_size}"
        )
    most = len(submit.prompt) + submit.max_new_tokens
    if most > known.capacity_tokens:
        return rejected(
            submit,
            "too_long",
            f"{len(submit.prompt)} prompt tokens and up to {submit.max_new_tokens} new ones are {most}, "
            f"at most {known.capacity_tokens} fit",
        )
    if waiting >= MAX_WAITING and not submit.attempt:
        return rejected(
            submit,
            "queue_full",
            f"{waiting} requests are waiting already",
            retry_after_s(waiting, finished_per_s),
        )
    return None


def choose_lane(request: Request, lanes: Sequence[Lane]) -> Lane | None:
    """The least used lane that can hold the request to its end, or None: it waits."""
    fitting = [lane for lane in lanes if lane.fits(request)]
    return min(fitting, key=lambda lane: (lane.used_ratio, len(lane.running), lane.index), default=None)
