"""Step plans: the one command per step that a lane or an expert worker gets.

A plan is frozen and checks itself when it is made, so whoever holds one may act on it. It names
requests and token counts, never KV pages: pages belong to the lane. Plans of one step agree in
(epoch, step, phase, bucket, microbatches); idle lanes get a plan without work, because every lane
takes part in every round.

Source of the shape: FastAFD `afd_protocol.py` (`AfdAGStepPlan`, `AfdEGStepPlan`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MAX_MICROBATCHES = 4
MAX_LEAD = 3
"""Most steps that may be issued and not yet committed."""
MAX_SEED = 2**63 - 1


class PlanError(ValueError):
    """A plan contradicts itself; the message says where."""


class Phase(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a request's tokens are chosen. `temperature` 0 is greedy. A token depends on
    (`seed`, position) and the logits alone, so a replay gives the same one."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise PlanError(f"temperature {self.temperature} is not within 0..100")
        if not 0 < self.top_p <= 1:
            raise PlanError(f"top_p {self.top_p} is not within (0, 1]")
        if self.top_k < 0:
            raise PlanError(f"top_k {self.top_k} is negative")
        if not 0 <= self.seed <= MAX_SEED:
            raise PlanError(f"seed {self.seed} is not within 0..{MAX_SEED}")


class SequenceWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane does for one request in one step: run `count` tokens from position `start` on.

    In decode `count` is 1 and the lane knows the token (it sampled it). In prefill `tokens` carries
    them. `sample` is set on the last piece of a prompt and in decode: the step yields a token."""

    request_id: str
    attempt: int
    start: int
    count: int
    sample: bool
    tokens: list[int] | None = None
    reserve: int = 0
    """First work of an attempt: positions to keep pages for (prompt + most new tokens), else 0."""
    sampling: Sampling | None = None
    """With the first work of an attempt, else None."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.start < 0 or self.attempt < 0:
            raise PlanError(f"request {self.request_id}: start {self.start}, count {self.count}")
        if self.tokens is not None and len(self.tokens) != self.count:
            raise PlanError(
                f"request {self.request_id}: {len(self.tokens)} tokens for a count of {self.count}"
            )
        if self.tokens is None and not (self.count == 1 and self.sample):
            raise PlanError(f"request {self.request_id}: decode work is one sampled token")
        if (self.sampling is None) != (self.reserve == 0):
            raise PlanError(f"request {self.request_id}: sampling and reserve come together")


class StepPlan(msgspec.Struct, frozen=True, kw_only=True, tag="step-plan"):
    """Coordinator -> lane. `free` names (request, attempt) whose pages the lane gives back first.

    `bucket` is the size of the largest microbatch of any lane in rows (tokens): no lane
    dispatches more rows in a round than that."""

    epoch: int
    step: int
    phase: Phase
    bucket: int
    microbatches: list[list[SequenceWork]]
    """What each microbatch runs; all lanes have the same number of them, any may be empty."""
    free: list[tuple[str, int]] = []
    sent_ns: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.microbatches) <= MAX_MICROBATCHES:
            raise PlanError(
                f"step {self.step}: {len(self.microbatches)} microbatches, 1..{MAX_MICROBATCHES} allowed"
            )
        for number, works in enumerate(self.microbatches):
            rows = sum(work.count for work in works)
            if rows > self.bucket:
                raise PlanError(
                    f"step {self.step}: microbatch {number} has {rows} rows, bucket {self.bucket}"
                )
        works = [work for works in self.microbatches for work in works]
        if len({work.request_id for work in works}) != len(works):
            raise PlanError(f"step {self.step}: a request appears twice")
        for work in works:
            if (work.tokens is None) != (self.phase is Phase.DECODE):
                raise PlanError(f"step {self.step}: {work.request_id} is not {self.phase} work")


class ExpertStep(msgspec.Struct, frozen=True, kw_only=True, tag="expert-step"):
    """Coordinator -> expert worker. Small, because experts own no request state: routing travels
    with the data."""

    epoch: int
    step: int
    phase: Phase
    bucket: int
    microbatches: int
    sent_ns: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.microbatches <= MAX_MICROBATCHES:
            raise PlanError(
                f"step {self.step}: {self.microbatches} microbatches, 1..{MAX_MICROBATCHES} allowed"
            )
        if self.bucket < 0:
            raise PlanError(f"step {self.step}: bucket {self.bucket} is negative")
