"""What others have published, as data: the numbers that docs/validation.md sets ours beside.

Sources
    FastAFD article    Hao AI Lab, 2026-07-06, as analysed 2026-07-14
    FastAFD repository linsj20/FastAFD at 3c71619, its reproduction notes: tokens/s/GPU against vLLM EP4 and EP16
    ExpertPlex         arXiv:2607.18002, figures 7 and 8, section 6
    H200               one H200 (132 SMs) measured for this project 2026-12-01: graph-launched kernels, medians of 20
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_operator.planner.identity import StepShares

FASTAFD_GRID = (1, 2, 3, 5, 7, 11, 17)
"""Attention nodes to one expert node that a choice is scored on: FastAFD's optima (7, 11, 17) and points between and
below them. The points of its own 176-point sweep are not published one by one."""
BATCH_EXPANSION = 1.5
MICROBATCHES = 2


@dataclass(frozen=True, kw_only=True)
class FastAfdRow:
    """One of the four decode results on GB200 NVL72; shares in percent of the colocated EP4 step."""

    model: str
    label: str
    context: int
    coloc_batch: int
    attention_batch: int
    attention_nodes: int
    fmha: float
    dense: float
    moe: float
    predicted: float
    measured: float
    implied_ratio: float
    moe_offload: float
    all_offload: float
    afd_tokens: float
    ep4_tokens: float
    ep16_tokens: float

    @property
    def shares(self) -> StepShares:
        return StepShares.percent(self.fmha, self.dense, self.moe)

    @property
    def coloc_step_ms(self) -> float:
        return self.coloc_batch / self.ep4_tokens * 1e3


FASTAFD = (
    FastAfdRow(
        model="Qwen/Qwen3-235B-A22B-FP8",
        label="Qwen3-235B 8K",
        context=8192,
        coloc_batch=64,
        attention_batch=96,
        attention_nodes=7,
        fmha=41.4,
        dense=15.7,
        moe=43.0,
        predicted=1.41,
        measured=1.41,
        implied_ratio=1.074,
        moe_offload=1.75,
        all_offload=2.42,
        afd_tokens=2522.6,
        ep4_tokens=1779.8,
        ep16_tokens=2331.7,
    ),
    FastAfdRow(
        model="Qwen/Qwen3-235B-A22B-FP8",
        label="Qwen3-235B 16K",
        context=16384,
        coloc_batch=32,
        attention_batch=48,
        attention_nodes=11,
        fmha=42.4,
        dense=16.0,
        moe=41.6,
        predicted=1.44,
        measured=1.44,
        implied_ratio=1.047,
        moe_offload=1.71,
        all_offload=2.36,
        afd_tokens=1395.8,
        ep4_tokens=935.8,
        ep16_tokens=1204.1,
    ),
    FastAfdRow(
        model="MiniMaxAI/MiniMax-M2.5",
        label="MiniMax-M2.5 8K",
        context=8192,
        coloc_batch=48,
        attention_batch=72,
        attention_nodes=17,
        fmha=43.4,
        dense=16.2,
        moe=40.5,
        predicted=1.45,
        measured=1.45,
        implied_ratio=1.024,
        moe_offload=1.68,
        all_offload=2.30,
        afd_tokens=2254.4,
        ep4_tokens=1512.6,
        ep16_tokens=2218.9,
    ),
    FastAfdRow(
        model="MiniMaxAI/MiniMax-M2.5",
        label="MiniMax-M2.5 16K",
        context=16384,
        coloc_batch=24,
        attention_batch=36,
        attention_nodes=17,
        fmha=48.2,
        dense=15.3,
        moe=36.4,
        predicted=1.38,
        measured=1.35,
        implied_ratio=0.953,
        moe_offload=1.57,
        all_offload=2.07,
        afd_tokens=1006.0,
        ep4_tokens=735.0,
        ep16_tokens=1118.7,
    ),
)

UNFUSED_STEP_GROWTH = {"Qwen3-235B 8K": 0.44, "MiniMax-M2.5 8K": 0.42}
"""Step growth at 8 nodes (7:1) without MegaMoE fusion."""
OVERLAP_STEP_MS = (32.826, 42.612)
"""Qwen3-235B 8K at 4 nodes: with and without cross-step scheduling overlap."""

SERVING_SLO = {
    ("MiniMax-M2.7", "ShareGPT"): (1.0, 0.050),
    ("MiniMax-M2.7", "LooGLE"): (10.0, 0.100),
    ("GLM-5.1", "ShareGPT"): (2.0, 0.100),
    ("GLM-5.1", "LooGLE"): (20.0, 0.100),
}
"""ExpertPlex: TTFT and TPOT targets in seconds, met by 90 % of requests."""

EXPERTPLEX_RATIOS: dict[tuple[str, str], dict[str, float | None]] = {
    ("MiniMax-M2.7", "ShareGPT"): {"chunked": 5.65, "colocated": 2.72, "pdd": 2.01, "pdmux": 1.41},
    ("MiniMax-M2.7", "LooGLE"): {"chunked": None, "colocated": 4.12, "pdd": None, "pdmux": 1.28},
    ("GLM-5.1", "ShareGPT"): {"chunked": 3.3, "colocated": 1.5, "pdd": None, "pdmux": 1.0},
    ("GLM-5.1", "LooGLE"): {"chunked": 5.0, "colocated": 2.5, "pdd": None, "pdmux": 1.66},
}
"""ExpertPlex goodput over each baseline's. None: the baseline misses the target, runs out of memory,
or its figure is not stated."""

EXPERTPLEX_MINIMAX_REQUESTS_PER_NODE = 11.3
"""MiniMax-M2.7 on ShareGPT, requests/s per node of 8 H800."""


@dataclass(frozen=True)
class Measured:
    """One kernel timed on the project's H200."""

    what: str
    microseconds: float


H200_ATTENTION = {
    ("q64kv4d128", 96, 8192): Measured("FlashInfer paged decode, 64/4 heads, 96 x 8192", 394),
    ("q64kv4d128", 48, 16384): Measured("FlashInfer paged decode, 64/4 heads, 48 x 16384", 391),
    ("q48kv8d128", 72, 8192): Measured("FlashInfer paged decode, 48/8 heads, 72 x 8192", 609),
    ("q32kv4d128", 64, 4096): Measured("FlashInfer paged decode, 32/4 heads, 64 x 4096", 137),
}
"""(profile shape, batch, context) -> microseconds of one layer, BF16 KV."""

H200_MOE = {
    ("MiniMaxAI/MiniMax-M2.7", 1, 64): Measured(
        "DeepGEMM fused MoE layer, MiniMax-M2.7, 256 experts, 64 tokens", 994
    ),
    ("MiniMaxAI/MiniMax-M2.7", 1, 256): Measured(
        "DeepGEMM fused MoE layer, MiniMax-M2.7, 256 experts, 256 tokens", 1092
    ),
    ("MiniMaxAI/MiniMax-M2.7", 1, 1024): Measured(
        "DeepGEMM fused MoE layer, MiniMax-M2.7, 256 experts, 1024 tokens", 1156
    ),
    ("zai-org/GLM-5.1-FP8", 8, 512): Measured(
        "DeepGEMM fused MoE layer, GLM-5.1, 32 local experts, 64 tokens", 427
    ),
    ("zai-org/GLM-5.1-FP8", 8, 2048): Measured(
        "DeepGEMM fused MoE layer, GLM-5.1, 32 local experts, 256 tokens", 507
    ),
    ("zai-org/GLM-5.1-FP8", 8, 8192): Measured(
        "DeepGEMM fused MoE layer, GLM-5.1, 32 local experts, 1024 tokens", 1057
    ),
}
"""(model, expert ranks, tokens over all ranks) -> microseconds. 64 tokens choosing 8 of 32 local experts put as many
rows on the rank as 512 tokens choosing 8 of 256 over 8 ranks."""
