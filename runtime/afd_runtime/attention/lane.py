"""The lane's engine: a plan in, sampled tokens out.

A step changes the table in two places only: releases and admissions before the layers run, tokens and
lengths after all of them have. If it fails in between (an expert worker is lost, the epoch is
aborted), nothing has to be undone: `abort` goes back to a committed step, and KV that the broken step
wrote lies past every request's length, where the repeated step writes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from afd_runtime.attention.admission import admission
from afd_runtime.attention.clock import StepClock
from afd_runtime.attention.exchange import Exchange
from afd_runtime.attention.kv_cache import KvCache
from afd_runtime.attention.limits import LaneLimits
from afd_runtime.attention.microbatch import Microbatch
from afd_runtime.attention.pipeline import run_layers
from afd_runtime.attention.sampler import sample
from afd_runtime.attention.table import RequestTable
from afd_runtime.models.split import ExpertSplit
from afd_runtime.models.stages import AttentionStage
from afd_runtime.protocol.messages import Held, LaneCapacity, Sampled, StepTimes
from afd_runtime.protocol.plan import StepPlan
from afd_runtime.transport.contract import LaneEndpoint
from afd_runtime.transport.errors import EndpointClosed


@dataclass(frozen=True)
class StepOutput:
    """What a step gave. `logits[request_id]` is [1, vocab] of a sampled row, or [count, vocab] of
    all of the request's rows when they were asked for."""

    sampled: list[Sampled]
    times: StepTimes
    logits: dict[str, torch.Tensor]


class Lane:
    """One attention GPU's state and its loop body. Not thread-safe: one thread runs it."""

    def __init__(
        self,
        stage: AttentionStage,
        limits: LaneLimits,
        split: ExpertSplit,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """`alive` is called as each layer of a step begins: a step may take long, but not for ever."""
        self._stage = stage
        self._limits = limits
        self._split = split
        self._alive = alive
        self.cache = KvCache(stage.shape, limits, stage.dtype)
        self._endpoint: LaneEndpoint | None = None
        self.table = RequestTable(limits, self.cache)

    @property
    def capacity(self) -> LaneCapacity:
        return LaneCapacity(
            kv_pages=self._limits.kv_pages,
            page_tokens=self._limits.page_tokens,
            table_slots=self._limits.table_slots,
            max_rows=self._limits.max_rows,
            eos_token_ids=list(self._stage.shape.eos_token_ids),
            vocab_size=self._stage.shape.vocab,
        )

    def attach(self, endpoint: LaneEndpoint | None) -> None:
        """Use the endpoint of a new epoch (None between epochs); the old one is closed."""
        if self._endpoint is not None:
            self._endpoint.close()
        self._endpoint = endpoint

    def held(self) -> list[Held]:
        return self.table.held()

    def abort(self, committed_step: int) -> None:
        """Steps after `committed_step` did not happen. Doing it twice changes nothing."""
        self.table.abort(committed_step)
        self.table.check_conserved()

    @torch.inference_mode()
    def run(self, plan: StepPlan, *, every_row: bool = False) -> StepOutput:
        """Run one step; `every_row` asks for the logits of all rows instead of the sampled ones.

        Raises PlanRefused before anything has changed, TransportError when the step could not be
        finished: then the lane waits for `abort`."""
        clock = StepClock()
        endpoint = self._endpoint
        if endpoint is None:
            raise EndpointClosed(f"step {plan.step}: this lane is in no epoch")
        todo = admission(plan, self.table, self._limits, self._stage.shape.vocab)
        for request_id in todo.release:
            self.table.release(request_id)
        for work in todo.admit:
            self.table.admit(work)
        microbatches = self._microbatches(plan)
        exchange = Exchange(endpoint, self._split, clock)
        run_layers(plan, microbatches, self._stage, self.cache, exchange, self._alive)
        return self._finish(plan, microbatches, clock, every_row)

    def _microbatches(self, plan: StepPlan) -> list[Microbatch]:
        made: list[Microbatch] = []
        for number, works in enumerate(plan.microbatches):
            residents = [self.table.find(work.request_id, work.attempt) for work in works]
            parts = [(work, r) for work, r in zip(works, residents, strict=True) if r is not None]
            assert len(parts) == len(works), "admission checked that every request is here"
            made.append(Microbatch(number, parts, self._stage, self.cache.guard_slot))
        return made

    def _finish(
        self, plan: StepPlan, microbatches: list[Microbatch], clock: StepClock, every_row: bool
    ) -> StepOutput:
        """Sample, then let every request advance."""
        parts = [part for microbatch in microbatches for part in microbatch.parts]
        sampling = [(work, resident) for work, resident in parts if work.sample]
        last = torch.cat([microbatch.hidden[microbatch.last_rows()] for microbatch in microbatches])
        logits = self._stage.logits(last)
        positions = [work.start + work.count for work, _ in sampling]
        tokens = sample(logits, [resident.sampling for _, resident in sampling], positions)
        token_of = {work.request_id: token for (work, _), token in zip(sampling, tokens, strict=True)}
        for work, resident in parts:
            resident.advance(plan.step, work, token_of.get(work.request_id))
        self.table.check_conserved()
        sampled = [
            Sampled(work.request_id, work.attempt, work.start + work.count, token_of[work.request_id])
            for work, _ in sampling
        ]
        if every_row:
            by_request = self._logits_of_every_row(microbatches)
        else:
            by_request = {
                work.request_id: row.unsqueeze(0) for (work, _), row in zip(sampling, logits, strict=True)
            }
        return StepOutput(sampled, clock.times(), by_request)

    def _logits_of_every_row(self, microbatches: list[Microbatch]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for microbatch in microbatches:
            rows = torch.split(microbatch.hidden, microbatch.batch.counts)
            for (work, _), hidden in zip(microbatch.parts, rows, strict=True):
                found[work.request_id] = self._stage.logits(hidden)
        return found
