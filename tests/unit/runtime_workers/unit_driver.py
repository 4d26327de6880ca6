"""A unit of M lanes and N expert workers in this process, and a driver that plays the coordinator.

Lanes and expert workers are the runtime's own, one thread each, over the transport under test. Only
the coordinator is a stand-in: it deals requests round robin to lanes and microbatches and keeps one
step out at a time. It models no admission, no lead and no control messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from afd_runtime.attention.lane import Lane, StepOutput
from afd_runtime.attention.limits import LaneLimits
from afd_runtime.experts.loop import ExpertLoop
from afd_runtime.models.checkpoint import Checkpoint
from afd_runtime.models.registry import family_of
from afd_runtime.models.split import ExpertSplit
from afd_runtime.protocol.plan import Phase, Sampling, SequenceWork, StepPlan
from afd_runtime.transport.contract import ExpertEndpoint, LaneEndpoint
from afd_runtime.transport.errors import EndpointClosed
from afd_runtime.transport.round import WireFormat


class Connect(Protocol):
    """Endpoints of one epoch over the transport under test, as `transport.inprocess.connect`."""

    def __call__(
        self, wire: WireFormat, epoch: int, lanes: Sequence[int], workers: int, timeout_s: float = 30.0
    ) -> tuple[Mapping[int, LaneEndpoint], Sequence[ExpertEndpoint]]: ...


GREEDY = Sampling()


@dataclass
class Request:
    """One request as the driver sees it."""

    name: str
    prompt: list[int]
    lane: int
    microbatch: int
    sampling: Sampling
    reserve: int
    answer: list[int] = field(default_factory=list)
    prefilled: int = 0


class Unit:
    def __init__(
        self,
        lanes: list[Lane],
        loops: list[Callable[[ExpertEndpoint], ExpertLoop]],
        connect: Connect,
        wire: WireFormat,
    ) -> None:
        self.lanes = lanes
        self._make_loop = loops
        self._connect = connect
        self._wire = wire
        self._pool = ThreadPoolExecutor(len(lanes) + len(loops))
        self._experts: list[ExpertEndpoint] = []
        self._serving: list[Future[None]] = []
        self.loops: list[ExpertLoop] = []
        self.epoch = 0
        self.steps = 0
        self.requests: dict[str, Request] = {}
        self.new_epoch()

    def new_epoch(self, committed_step: int | None = None) -> None:
        """The four moves, without replay: close the old endpoints, go back, connect anew."""
        self.end_epoch()
        self.epoch += 1
        by_lane, self._experts = self._connect(
            self._wire, self.epoch, range(len(self.lanes)), len(self._make_loop)
        )
        for index, lane in enumerate(self.lanes):
            lane.attach(by_lane[index])
            if committed_step is not None:
                lane.abort(committed_step)
        self.loops = [make(endpoint) for make, endpoint in zip(self._make_loop, self._experts, strict=True)]
        self._serving = [self._pool.submit(_serve, loop) for loop in self.loops]

    def end_epoch(self) -> None:
        for lane in self.lanes:
            lane.attach(None)
        for endpoint in self._experts:
            endpoint.close()
        for future in self._serving:
            future.result(10)

    def close(self) -> None:
        self.end_epoch()
        self._pool.shutdown()

    def add(
        self,
        prompts: Mapping[str, list[int]],
        answer_tokens: int,
        sampling: Sampling = GREEDY,
        microbatches: int = 1,
    ) -> None:
        """Deal requests round robin to lanes, and within a lane to microbatches."""
        for name, prompt in prompts.items():
            number = len(self.requests)
            lane, place = number % len(self.lanes), number // len(self.lanes)
            self.requests[name] = Request(
                name, prompt, lane, place % microbatches, sampling, len(prompt) + answer_tokens
            )

    def plans(
        self, phase: Phase, works: Mapping[str, SequenceWork], microbatches: int, free: Sequence[str] = ()
    ) -> list[StepPlan]:
        """The next step's plan for each lane: the works of all requests, dealt as the requests are."""
        self.steps += 1
        parts: list[list[list[SequenceWork]]] = [[[] for _ in range(microbatches)] for _ in self.lanes]
        for name, work in works.items():
            request = self.requests[name]
            parts[request.lane][request.microbatch].append(work)
        bucket = max(sum(work.count for work in batch) for lane in parts for batch in lane)
        freed: list[list[tuple[str, int]]] = [[] for _ in self.lanes]
        for name in free:
            freed[self.requests[name].lane].append((name, 0))
        return [
            StepPlan(
                epoch=self.epoch, step=self.steps, phase=phase, bucket=bucket, microbatches=batches, free=gone
            )
            for batches, gone in zip(parts, freed, strict=True)
        ]

    def submit(self, lane: int, plan: StepPlan, *, every_row: bool = False) -> Future[StepOutput]:
        """Let one lane begin its part of a step."""
        return self._pool.submit(self.lanes[lane].run, plan, every_row=every_row)

    def run(
        self,
        phase: Phase,
        works: Mapping[str, SequenceWork],
        microbatches: int,
        *,
        every_row: bool = False,
        free: Sequence[str] = (),
    ) -> list[StepOutput]:
        """One whole step."""
        plans = self.plans(phase, works, microbatches, free)
        running = [self.submit(lane, plan, every_row=every_row) for lane, plan in enumerate(plans)]
        return [future.result(60) for future in running]

    def prefill_work(self, name: str, chunk: int | None = None) -> SequenceWork:
        request = self.requests[name]
        start, end = (
            request.prefilled,
            min(len(request.prompt), request.prefilled + (chunk or len(request.prompt))),
        )
        first = start == 0
        return SequenceWork(
            request_id=name,
            attempt=0,
            start=start,
            count=end - start,
            sample=end == len(request.prompt),
            tokens=request.prompt[start:end],
            reserve=request.reserve if first else 0,
            sampling=request.sampling if first else None,
        )

    def prefill(
        self, microbatches: int = 1, chunk: int | None = None, every_row: bool = False
    ) -> dict[str, torch.Tensor]:
        """Prefill every request that is not yet; returns the logits of the last step that had each."""
        logits: dict[str, torch.Tensor] = {}
        while pending := [r for r in self.requests.values() if r.prefilled < len(r.prompt)]:
            works = {request.name: self.prefill_work(request.name, chunk) for request in pending}
            for output in self.run(Phase.PREFILL, works, microbatches, every_row=every_row):
                logits.update(output.logits)
                self._take(output)
            for request in pending:
                request.prefilled += works[request.name].count
        return logits

    def decode_work(self, name: str) -> SequenceWork:
        request = self.requests[name]
        return SequenceWork(
            request_id=name,
            attempt=0,
            start=len(request.prompt) + len(request.answer) - 1,
            count=1,
            sample=True,
        )

    def decode(self, microbatches: int = 1) -> list[StepOutput]:
        outputs = self.run(
            Phase.DECODE, {name: self.decode_work(name) for name in self.requests}, microbatches
        )
        for output in outputs:
            self._take(output)
        return outputs

    def generate(
        self,
        prompts: Mapping[str, list[int]],
        answer_tokens: int,
        *,
        microbatches: int = 1,
        chunk: int | None = None,
        sampling: Sampling = GREEDY,
    ) -> dict[str, list[int]]:
        self.add(prompts, answer_tokens, sampling, microbatches)
        self.prefill(microbatches, chunk)
        for _ in range(answer_tokens - 1):
            self.decode(microbatches)
        return {name: request.answer for name, request in self.requests.items()}

    def free_all(self, microbatches: int = 1) -> None:
        """A dummy step that carries the frees of everything, as after the last request."""
        self.run(Phase.DECODE, {}, microbatches, free=list(self.requests))
        self.requests.clear()

    def _take(self, output: StepOutput) -> None:
        for sampled in output.sampled:
            request = self.requests[sampled.request_id]
            assert sampled.position == len(request.prompt) + len(request.answer), (
                "a token was skipped or repeated"
            )
            request.answer.append(sampled.token)


def _serve(loop: ExpertLoop) -> None:
    try:
        while True:
            loop.serve(1.0)
    except EndpointClosed:
        return


@contextmanager
def unit(
    folder: Path,
    connect: Connect,
    *,
    lanes: int = 1,
    workers: int = 1,
    page_tokens: int = 16,
    context_length: int = 512,
    kv_pages: int = 200,
    table_slots: int = 40,
    max_rows: int = 512,
    dtype: torch.dtype = torch.float32,
) -> Iterator[Unit]:
    """A running unit over the checkpoint in `folder`."""
    limits = LaneLimits(
        kv_pages=kv_pages,
        page_tokens=page_tokens,
        table_slots=table_slots,
        max_rows=max_rows,
        context_length=context_length,
    )
    with Checkpoint(folder) as checkpoint:
        family = family_of(checkpoint)
        shape = family.read_shape(checkpoint)
        split = ExpertSplit(shape.experts, workers)
        stage = family.load_attention(checkpoint, dtype)
        stages = [family.load_experts(checkpoint, split.owned(worker), dtype) for worker in range(workers)]
    wire = WireFormat(hidden=shape.hidden, top_k=shape.top_k, max_rows=max_rows, dtype=dtype)
    loops = [lambda endpoint, stage=stage: ExpertLoop(stage, endpoint) for stage in stages]
    made = Unit([Lane(stage, limits, split) for _ in range(lanes)], loops, connect, wire)
    try:
        yield made
    finally:
        made.close()
