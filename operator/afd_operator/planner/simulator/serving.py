"""The five systems, iteration by iteration, on one clock.

    one engine    chunked      every step: all running requests + up to c prefill tokens a GPU
                  colocated    whole prompts first, decode otherwise
    two engines   pdd          own GPUs, own weights, own KV for each phase
                  pdmux        same GPUs, fixed shares of the SMs while both phases have work
                  afd          own attention GPUs for each phase, shared expert GPUs

An engine is busy with one iteration at a time. A request waits, is prefilled (first token), decodes one
token per iteration, and leaves. Admission reserves prompt + output tokens of KV, so nothing is evicted.
The policies are this file's own: the runtime's coordinator batches by rules of its own, which these follow in
outline only.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from afd_operator.planner.errors import MissingData
from afd_operator.planner.simulator.loop import Loop
from afd_operator.planner.simulator.timing import ColocatedTiming, Timing
from afd_operator.planner.simulator.traffic import Request

Kind = Literal["chunked", "colocated", "pdd", "pdmux", "afd"]
PREFILL_TOKENS = 16_384
"""Tokens a GPU prefills in one pass at most (SGLang's default budget for one batch)."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A system ready to serve. `kv_tokens` is the KV room of all decoding GPUs together."""

    kind: Kind
    gpus: int
    prefill: Timing
    decode: Timing
    prefill_gpus: int
    decode_gpus: int
    kv_tokens: float
    chunk: int = 0
    shared: bool = False
    """Whether the phases contend for the same SMs (pdmux, afd)."""
    setting: str = ""

    def __post_init__(self) -> None:
        if self.kv_tokens <= 0:
            raise MissingData(f"{self.kind} {self.setting}: the weights leave no room for KV")


@dataclass(frozen=True)
class Failure:
    """At `at_s` a GPU's node is lost for `repair_s`; `role` matters to systems that separate roles."""

    at_s: float
    repair_s: float
    role: Literal["attention", "expert"] = "attention"


@dataclass
class Decoding:
    """Requests in decode: a heap by the iteration at which each produces its last token."""

    heap: list[tuple[int, int, Request]] = field(default_factory=list)
    iteration: int = 0
    context: float = 0.0
    """Sum of the contexts of all running requests, tokens."""
    reserved: float = 0.0
    _sequence: int = 0

    def __len__(self) -> int:
        return len(self.heap)

    def admit(self, request: Request) -> None:
        self._sequence += 1
        heapq.heappush(self.heap, (self.iteration + request.output - 1, self._sequence, request))
        self.context += request.prompt + 1

    def step(self, now: float) -> list[Request]:
        """One token for every running request; returns those that are done, with their finish time set."""
        self.iteration += 1
        self.context += len(self.heap)
        done = []
        while self.heap and self.heap[0][0] <= self.iteration:
            _, _, request = heapq.heappop(self.heap)
            request.finish = now
            self.context -= request.prompt + request.output
            self.reserved -= request.prompt + request.output
            done.append(request)
        return done

    def drop(self, share: float) -> list[Request]:
        """Lose `share` of the running requests, every so-manieth one; they must be prefilled again."""
        if share <= 0 or not self.heap:
            return []
        keep_every = max(1, round(1 / share))
        lost = [entry for i, entry in enumerate(self.heap) if i % keep_every == 0]
        self.heap = [entry for i, entry in enumerate(self.heap) if i % keep_every != 0]
        heapq.heapify(self.heap)
        for finish, _, request in lost:
            done_tokens = request.output - 1 - (finish - self.iteration)
            self.context -= request.prompt + 1 + max(0, done_tokens)
            self.reserved -= request.prompt + request.output
        return [request for _, _, request in lost]


class Simulation:
    """One run of `requests` on `system`; requests are filled in as they progress."""

    def __init__(self, system: System, requests: list[Request], failures: tuple[Failure, ...] = ()) -> None:
        self.system, self.requests = system, requests
        self.loop = Loop()
        self.waiting: deque[Request] = deque()
        self.prefilled: deque[Request] = deque()
        self.decoding = Decoding()
        self.prefilling: list[Request] = []
        self.progress = 0.0
        self.busy = {"prefill": False, "decode": False}
        self.busy_s = {"prefill": 0.0, "decode": 0.0}
        self.samples: list[tuple[float, int, int, int]] = []
        self.down_until = {"prefill": 0.0, "decode": 0.0}
        self.lanes = float(system.decode_gpus)
        for request in requests:
            self.loop.at(request.arrival, lambda r=request: self._arrive(r))  # type: ignore[misc]
        for failure in failures:
            self.loop.at(failure.at_s, lambda f=failure: self._fail(f))  # type: ignore[misc]

    def run(self, until: float | None = None) -> Simulation:
        self.loop.run(until)
        return self

    # Arrival and dispatch ------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        self.waiting.append(request)
        self._dispatch()

    def _dispatch(self) -> None:
        """Start whatever engine is idle and has work."""
        if self.system.kind in ("chunked", "colocated"):
            if not self.busy["decode"] and self.loop.now >= self.down_until["decode"]:
                self._one_engine()
            return
        if not self.busy["prefill"] and self.loop.now >= self.down_until["prefill"]:
            self._start_prefill()
        if not self.busy["decode"] and self.loop.now >= self.down_until["decode"]:
            self._start_decode()

    def _run(self, engine: str, seconds: float, done: object) -> None:
        self.busy[engine] = True
        self.busy_s[engine] += seconds

        def finish() -> None:
            self.busy[engine] = False
            done()  # type: ignore[operator]
            self.samples.append((self.loop.now, len(self.waiting), len(self.prefilling), len(self.decoding)))
            self._dispatch()

        self.loop.after(seconds, finish)

    def _admissible(self, request: Request) -> bool:
        """Room for all its tokens; a request larger than everything is let in alone rather than never."""
        needed = request.prompt + request.output
        return self.decoding.reserved + needed <= self.system.kv_tokens or self.decoding.reserved <= 0

    def _take_prompts(self) -> list[Request]:
        """Waiting prompts for one prefill pass: as many as the GPUs' token budget and the KV room allow."""
        taken: list[Request] = []
        longest, budget = 0, PREFILL_TOKENS
        while self.waiting and self._admissible(self.waiting[0]):
            longest = max(longest, self.waiting[0].prompt)
            per_gpu = -(-(len(taken) + 1) // self.system.prefill_gpus)
            if taken and per_gpu * longest > budget:
                break
            request = self.waiting.popleft()
            self.decoding.reserved += request.prompt + request.output
            taken.append(request)
        return taken

    # Two engines ---------------------------------------------------------------------------------

    def _start_prefill(self) -> None:
        batch = self._take_prompts()
        if not batch:
            return
        self.prefilling = batch
        self._run("prefill", self._prefill_s(batch, self._contended("decode")), self._prefill_done)

    def _prefill_s(self, batch: list[Request], contended: bool) -> float:
        per_gpu = -(-len(batch) // self.system.prefill_gpus)
        mean = sum(r.prompt for r in batch) / len(batch)
        return self.system.prefill.prefill_s(per_gpu, mean, contended)

    def _contended(self, other: str) -> bool:
        if not self.system.shared:
            return False
        return (
            self.busy[other]
            or (other == "decode" and len(self.decoding) > 0)
            or (other == "prefill" and bool(self.waiting))
        )

    def _prefill_done(self) -> None:
        for request in self.prefilling:
            if request.first_token is None:
                request.first_token = self.loop.now
            self._to_decode(request)
        self.prefilling = []

    def _to_decode(self, request: Request) -> None:
        if request.output <= 1:
            request.finish = self.loop.now
            self.decoding.reserved -= request.prompt + request.output
        else:
            self.decoding.admit(request)

    def _start_decode(self) -> None:
        if len(self.decoding):
            self._run("decode", self._decode_s(self._contended("prefill")), self._decode_done)

    def _decode_s(self, contended: bool) -> float:
        running = len(self.decoding)
        return self.system.decode.decode_s(
            running / self.lanes, max(1.0, self.decoding.context / running), contended
        )

    def _decode_done(self) -> None:
        self.decoding.step(self.loop.now)

    # One engine ----------------------------------------------------------------------------------

    def _one_engine(self) -> None:
        if self.system.kind == "chunked":
            self._chunk_step()
            return
        batch = self._take_prompts()
        if batch:
            self.prefilling = batch
            self._run("decode", self._prefill_s(batch, False), self._prefill_done)
        elif len(self.decoding):
            self._run("decode", self._decode_s(False), self._decode_done)

    def _chunk_step(self) -> None:
        """Lanes chunk their own prompts: a long prompt takes many steps, short ones share a chunk.

        Prompts are taken in groups: the next group starts when the last prompt of this one is through.
        """
        if not self.prefilling:
            self.prefilling = self._take_chunk_group()
        timing, running = self.system.decode, len(self.decoding)
        assert isinstance(timing, ColocatedTiming)
        context = self.decoding.context / running if running else 1.0
        if self.prefilling:
            lane_tokens = max(
                max(r.prompt for r in self.prefilling),
                sum(r.prompt for r in self.prefilling) / self.system.gpus,
            )
            used = min(float(self.system.chunk), lane_tokens - self.progress)
            seconds = timing.chunk_s(running / self.lanes, context, used, lane_tokens)
            self._run("decode", seconds, lambda: self._chunk_done(used, lane_tokens))
        elif running:
            self._run("decode", timing.decode_s(running / self.lanes, context, False), self._decode_done)

    def _take_chunk_group(self) -> list[Request]:
        """Prompts until every lane has one or a chunk is full on all lanes."""
        taken: list[Request] = []
        total = 0
        while self.waiting and self._admissible(self.waiting[0]):
            if (
                len(taken) >= self.system.gpus
                and total + self.waiting[0].prompt > self.system.chunk * self.system.gpus
            ):
                break
            request = self.waiting.popleft()
            self.decoding.reserved += request.prompt + request.output
            total += request.prompt
            taken.append(request)
        return taken

    def _chunk_done(self, used: float, lane_tokens: float) -> None:
        self.decoding.step(self.loop.now)
        self.progress += used
        if self.progress >= lane_tokens - 1e-6:
            self.progress = 0.0
            self._prefill_done()

    # Failures ------------------------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        """What a lost node costs, by system.

        afd, attention: its lane's requests are replayed, the other lanes go on at reduced capacity.
        afd, expert: steps pause until repair, KV stays. All others: the instance is one collective; it stops,
        its KV is gone and its requests start over after repair.
        """
        kind = self.system.kind
        until = self.loop.now + failure.repair_s
        if kind == "afd" and failure.role == "attention":
            lost = self.decoding.drop(1.0 / self.system.decode_gpus)
            self.lanes = max(1.0, self.system.decode_gpus - 1.0)
            self.loop.at(until, self._repaired)
        elif kind == "afd":
            lost = []
            self.down_until = dict.fromkeys(self.down_until, until)
        else:
            lost = self.decoding.drop(1.0)
            engines = ("prefill", "decode") if kind != "pdd" else ("decode",)
            self.down_until.update(dict.fromkeys(engines, until))
        for request in lost:
            request.replays += 1
        self.waiting.extendleft(reversed(lost))
        self.loop.at(until, self._dispatch)
        self._dispatch()

    def _repaired(self) -> None:
        self.lanes = float(self.system.decode_gpus)
