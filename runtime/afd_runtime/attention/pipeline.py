"""The microbatch pipeline: while the experts have one microbatch, the lane works on another.

    2 microbatches     lane      A0 A1 | pull 0, A0 | pull 1, A1 | ...
                       experts      E0   E1           E0  ...

With one microbatch the lane waits for the experts in every layer; with two or more it waits only if
T_e > T_a (exposed FFN).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from afd_runtime.attention.exchange import Exchange, Outstanding
from afd_runtime.attention.kv_cache import KvCache
from afd_runtime.attention.microbatch import Microbatch
from afd_runtime.models.stages import AttentionStage
from afd_runtime.protocol.plan import StepPlan
from afd_runtime.transport.round import Round


def run_layers(
    plan: StepPlan,
    microbatches: Sequence[Microbatch],
    stage: AttentionStage,
    cache: KvCache,
    exchange: Exchange,
    alive: Callable[[], None],
) -> None:
    """Take every microbatch's `hidden` through all layers; raises TransportError."""
    outstanding: dict[int, Outstanding] = {}

    def settle(microbatch: Microbatch) -> None:
        if (out := outstanding.pop(microbatch.number, None)) is not None:
            microbatch.hidden = microbatch.hidden + exchange.combine(out)

    moe_layers = frozenset(stage.shape.moe_layers)
    for layer in range(stage.shape.layers):
        alive()
        for microbatch in microbatches:
            settle(microbatch)
            _attend(layer, microbatch, stage, cache)
            if layer in moe_layers:
                round = Round(plan.epoch, plan.phase, plan.step, layer, microbatch.number)
                routed = stage.route(layer, microbatch.hidden)
                outstanding[microbatch.number] = exchange.dispatch(round, routed)
            else:
                microbatch.hidden = stage.dense(layer, microbatch.hidden)
    for microbatch in microbatches:
        settle(microbatch)


def _attend(layer: int, microbatch: Microbatch, stage: AttentionStage, cache: KvCache) -> None:
    if microbatch.rows:
        microbatch.hidden = stage.attend(
            layer, microbatch.hidden, microbatch.batch, microbatch.rotation, cache.layer(layer)
        )
