"""Systems of tests: five kinds with small constant or real timings, in one line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from afd_operator.planner import catalog
from afd_operator.planner.hardware import hardware
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.simulator.serving import System
from afd_operator.planner.simulator.timing import ColocatedTiming, Timing

KINDS = ("chunked", "colocated", "pdd", "pdmux", "afd")


@dataclass(frozen=True)
class Constant:
    """Iterations of constant length, whatever the batch: what a queueing argument needs."""

    prefill: float
    decode: float

    def decode_s(self, batch: float, context: float, contended: bool) -> float:
        return self.decode

    def prefill_s(self, prompts: int, tokens: float, contended: bool) -> float:
        return self.prefill


@cache
def _small() -> ColocatedTiming:
    """Real timings: Qwen3-30B-A3B on 4 of 8 H100."""
    return ColocatedTiming(LayerModel.of(catalog.model("Qwen/Qwen3-30B-A3B-FP8"), hardware("h100-x8")), 4)


def system(kind: str, *, prefill_s: float | None = None, decode_s: float | None = None) -> System:
    """A system of `kind` with 4 decode GPUs; constant timings where given, else a small model's."""
    timing: Timing = _small() if prefill_s is None or decode_s is None else Constant(prefill_s, decode_s)
    return System(
        kind=kind,
        gpus=4,
        prefill=timing,
        decode=timing,
        prefill_gpus=4,
        decode_gpus=4,
        kv_tokens=200_000.0,
        chunk=512,  # type: ignore[arg-type]
        shared=kind in ("pdmux", "afd"),
        setting="test",
    )
