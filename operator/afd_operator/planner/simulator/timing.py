"""How long an iteration takes on each system. Seconds; the planner's formulas, cached by bucket.

A serving run asks for tens of thousands of iterations whose batch and context change slowly, so times are
kept for (batch, context) buckets: to a tenth of an e-fold, which moves a step by less than a kernel's own error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from afd_operator.planner.latency import EXCHANGE_EFFICIENCY, EXCHANGE_LATENCY_US, LayerModel
from afd_operator.planner.step import step_time

BUCKETS_PER_E = 10


class Timing(Protocol):
    """An iteration's duration; `contended` says that the other phase has work at the same time."""

    def decode_s(self, batch: float, context: float, contended: bool) -> float: ...

    def prefill_s(self, prompts: int, tokens: float, contended: bool) -> float: ...


@dataclass
class _Cache:
    compute: Callable[..., float]
    values: dict[tuple[float, ...], float] = field(default_factory=dict)

    def __call__(self, *key: float) -> float:
        rounded = tuple(_bucket(k) for k in key)
        if rounded not in self.values:
            self.values[rounded] = self.compute(*rounded)
        return self.values[rounded]


def _bucket(value: float) -> float:
    """Small counts exactly, larger values to the nearest tenth of an e-fold."""
    if value <= 16:
        return float(math.ceil(value))
    return math.exp(round(math.log(value) * BUCKETS_PER_E) / BUCKETS_PER_E)


class ColocatedTiming:
    """DP attention + EP experts over `ep` GPUs. `share` is decode's part of the SMs where phases run side by side.

    `tensor_parallel` splits attention over the group instead of requests: the same KV bytes and flops a GPU,
    and an all-reduce of every token's hidden state per layer (a ring's bytes at the all-to-alls' efficiency).
    """

    def __init__(
        self, layer: LayerModel, ep: int, share: float | None = None, *, tensor_parallel: bool = False
    ) -> None:
        self.layer, self.ep, self.share, self.tensor_parallel = layer, ep, share, tensor_parallel
        self._decode = _Cache(self._decode_us)
        self._prefill = _Cache(self._prefill_us)
        self._chunk = _Cache(self._chunk_us)

    def decode_s(self, batch: float, context: float, contended: bool) -> float:
        return self._decode(batch, context) / self._part(contended, decode=True) * 1e-6

    def prefill_s(self, prompts: int, tokens: float, contended: bool) -> float:
        return self._prefill(prompts, tokens) / self._part(contended, decode=False) * 1e-6

    def chunk_s(self, batch: float, context: float, chunk: float, prompt: float) -> float:
        """A step of `batch` decode tokens and `chunk` prefill tokens a GPU out of prompts of `prompt` tokens."""
        return self._chunk(max(batch, 1e-9), context, chunk, prompt) * 1e-6

    def _part(self, contended: bool, *, decode: bool) -> float:
        if self.share is None or not contended:
            return 1.0
        return self.share if decode else 1.0 - self.share

    def _decode_us(self, batch: float, context: float) -> float:
        parts = self.layer.colocated_us(batch, context, self.ep)
        return (float(parts.serial) + self._reduce_us(batch)) * self.layer.model.moe_layers + float(
            self.layer.head_us(batch)
        )

    def _reduce_us(self, tokens: float) -> float:
        """All-reduce after attention of `tokens` tokens a GPU, over the group."""
        if not self.tensor_parallel or self.ep == 1:
            return 0.0
        bytes_each = 2.0 * (self.ep - 1) / self.ep * tokens * self.ep * self.layer.model.hidden * 2
        link = EXCHANGE_EFFICIENCY * self.layer.hardware.required("link_bytes_per_s")
        return EXCHANGE_LATENCY_US["combine"] + bytes_each / link * 1e6

    def _prefill_us(self, prompts: float, tokens: float) -> float:
        total = prompts * tokens
        each = (
            self.layer.attention_us(prompts, tokens, "prefill")
            + self.layer.dense_us(total)
            + self._experts(total)
            + self._reduce_us(total)
        )
        return float(each) * self.layer.model.moe_layers + float(self.layer.head_us(prompts))

    def _experts(self, tokens: float) -> float:
        layer = self.layer
        exchange = layer.exchange_us("dispatch", tokens, self.ep) + layer.exchange_us(
            "combine", tokens, self.ep
        )
        return float(layer.experts_us(tokens * self.ep, self.ep) + exchange)

    def _chunk_us(self, batch: float, context: float, chunk: float, prompt: float) -> float:
        """The chunk attends to half its prompt on average, re-reading that KV, and shares the other kernels."""
        layer, share = self.layer, min(1.0, chunk / prompt)
        attention = (
            float(layer.attention_us(batch, context))
            + float(layer.attention_us(1.0, prompt, "prefill")) * share
        )
        if chunk < prompt:
            attention += float(layer.attention_us(1.0, max(1.0, prompt / 2)))
        tokens = batch + chunk
        return (
            attention + float(layer.dense_us(tokens)) + self._experts(tokens)
        ) * layer.model.moe_layers + float(layer.head_us(batch))


@dataclass(frozen=True)
class Shape:
    """GPUs of a disaggregated unit, and decode's SM share on expert GPUs while prefill has work."""

    prefill_gpus: int
    decode_gpus: int
    expert_gpus: int
    microbatches: int = 2
    decode_share: float = 0.5


class UnitTiming:
    """Attention and experts apart: prefill and decode attention GPUs share the expert GPUs tile by tile."""

    def __init__(self, layer: LayerModel, shape: Shape) -> None:
        self.layer, self.shape = layer, shape
        self._decode = _Cache(self._decode_us)
        self._prefill = _Cache(self._prefill_us)

    def decode_s(self, batch: float, context: float, contended: bool) -> float:
        return self._decode(batch, context, self.shape.decode_share if contended else 1.0) * 1e-6

    def prefill_s(self, prompts: int, tokens: float, contended: bool) -> float:
        return self._prefill(prompts, tokens, 1.0 - self.shape.decode_share / 2 if contended else 1.0) * 1e-6

    def _decode_us(self, batch: float, context: float, share: float) -> float:
        layer, shape = self.layer, self.shape
        m = min(shape.microbatches, max(1, int(batch)))
        t_a = float(layer.attention_us(batch / m, context) + layer.dense_us(batch / m))
        t_e = float(layer.expert_time_us(batch * shape.decode_gpus / m, shape.expert_gpus)) / share
        layers = layer.model.moe_layers
        return float(step_time(t_a, t_e, layer.transfer_us(), microbatches=m, layers=layers)) + m * float(
            layer.head_us(batch / m)
        )

    def _prefill_us(self, prompts: float, tokens: float, share: float) -> float:
        """Two halves, so that one half's experts run while the other attends. Decode, when it has work, holds its
        share about half the time: it is away attending the other half."""
        layer, shape = self.layer, self.shape
        half = prompts * tokens / 2
        t_a = float(layer.attention_us(prompts / 2, tokens, "prefill") + layer.dense_us(half))
        t_e = float(layer.expert_time_us(half * shape.prefill_gpus, shape.expert_gpus)) / share
        return float(step_time(t_a, t_e, layer.transfer_us(), microbatches=2, layers=layer.model.moe_layers))
