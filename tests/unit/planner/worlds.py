"""Models, systems and profiles of tests, each in one line."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from afd_operator.planner import catalog
from afd_operator.planner.hardware import Hardware, hardware
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.memory import MemoryRules
from afd_operator.planner.model import AttentionGroup, AttentionKind, ModelSpec, Precision

GB200 = hardware("gb200-nvl72")
QWEN = catalog.model("Qwen/Qwen3-235B-A22B-FP8")
MINIMAX = catalog.model("MiniMaxAI/MiniMax-M2.5")
DECODE_RULES = MemoryRules(prefill_tokens=512)
"""Memory rules of a decode-only window: no room is kept for prefill's slots."""


@cache
def layer(name: str = "Qwen/Qwen3-235B-A22B-FP8", system: str = "gb200-nvl72") -> LayerModel:
    return LayerModel.of(catalog.model(name), hardware(system))


def bigger(hw: Hardware, factor: float) -> Hardware:
    return replace(hw, hbm_bytes=hw.hbm_bytes * factor)


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    """Grouped-query MoE models of every size that a config could describe."""
    layers = draw(st.integers(1, 120))
    moe_layers = draw(st.integers(1, layers))
    kv_heads = draw(st.sampled_from([1, 2, 4, 8, 16]))
    head_dim = draw(st.sampled_from([64, 128, 256]))
    experts = draw(st.sampled_from([8, 32, 64, 128, 160, 256, 384]))
    windowed = draw(st.integers(0, layers))
    groups = [(layers - windowed, None), (windowed, draw(st.sampled_from([128, 1024, 4096])))]
    attention = tuple(
        AttentionGroup(
            kind=AttentionKind.GQA,
            layers=count,
            query_heads=kv_heads * draw(st.sampled_from([1, 4, 8, 16])),
            kv_heads=kv_heads,
            key_dim=head_dim,
            value_dim=head_dim,
            window_tokens=window,
        )
        for count, window in groups
        if count
    )
    return ModelSpec(
        name="drawn",
        hidden=draw(st.sampled_from([1024, 2048, 4096, 7168])),
        vocabulary=draw(st.integers(1000, 300_000)),
        layers=layers,
        moe_layers=moe_layers,
        experts=experts,
        top_k=draw(st.integers(1, min(16, experts))),
        expert_width=draw(st.sampled_from([512, 768, 1536, 3072])),
        dense_width=draw(st.sampled_from([0, 4096, 18432])),
        shared_width=draw(st.sampled_from([0, 2048])),
        attention=attention,
        expert_precision=draw(st.sampled_from([Precision.FP8, Precision.BF16, Precision.NVFP4])),
        dense_precision=draw(st.sampled_from([Precision.FP8, Precision.BF16])),
    )
