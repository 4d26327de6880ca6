"""Time of one layer, part by part: from a model, a system and its kernel profile.

    attention GPU   T_a = FMHA(batch, context) + dense(batch)          one layer, one microbatch
    expert GPU      T_e = max( kernel x eta , wire )                   all lanes' tokens of a microbatch
    link            T_c = latency + one tile's bytes / bandwidth       the rest of the payload overlaps T_e
    colocated GPU   attention + dense + experts + dispatch + combine   one layer, the whole batch

Dense is what the tables time (projections, router, shared and dense FFN, norms) plus the small kernels
between them (quantisation, rotary embedding, KV write, top-k, casts), which no table of ours times:
`SMALL_KERNELS_US` is calibrated on FastAFD's published decompositions and carries their spread.
All functions take scalars or numpy arrays and return microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from afd_operator.planner.errors import MissingData, UnsupportedModel
from afd_operator.planner.fit import Array, Component, Values
from afd_operator.planner.hardware import Hardware
from afd_operator.planner.identity import MOE_COMBINE_BYTES, MOE_DISPATCH_BYTES
from afd_operator.planner.model import AttentionGroup, AttentionKind, ModelSpec, Precision
from afd_operator.planner.moe import TILE_ROWS, copies_per_token, random_footprint, weight_floor_us
from afd_operator.planner.profile import Profile, built_in

MEMORY_OP_US = 3.0
MEMORY_EFFICIENCY = 0.8
"""A memory-bound kernel takes 3 us plus its bytes at 80 % of HBM: AIConfigurator's constants."""

SMALL_KERNELS_US = {"qwen3_moe": 21.5, "minimax_m2": 49.8}
SMALL_KERNELS_SD_US = 3.0
OTHER_FAMILIES_US = 35.7
OTHER_FAMILIES_SD_US = 16.0
"""Per layer and microbatch: FastAFD's published dense share less what our tables time, mean of a family's two
contexts (`validation.small_kernels_us`); for other families the mean and spread of the four rows."""

LINK_EFFICIENCY = 0.72
"""DeepEP V2 on SM100 moves 643 of 900 GB/s with 24 SMs, the boundary's budget."""
LINK_LATENCY_US = 3.0
"""Remote store, flag and poll inside an NVLink domain; a memory operation each way."""

EXCHANGE_LATENCY_US = {"dispatch": 25.0, "combine": 18.0}
EXCHANGE_EFFICIENCY = 0.48
EXCHANGE_SIGMA = 0.3
"""All-to-all where no table times one: latency and share of the link of GB200's timed rows at EP16."""

FUSED_EFFICIENCY = 1.0
FUSED_SIGMA = 0.12
"""eta of a persistent fused expert kernel against the table's separate kernels (DeepGEMM, launches
included). What fusion saves in launches (about 30 us a layer) it spends on the dispatch and combine it
takes in, so 1.0; the spread covers the 0.87 that the weight-read floor of Qwen3-235B would allow."""


@dataclass(frozen=True)
class Assumptions:
    """What the tables do not say, in one place, each with its reason beside the default."""

    small_kernels_us: float | None = None
    """Per layer and microbatch; None: the calibration of the model's family."""
    expert_efficiency: float = FUSED_EFFICIENCY
    expert_sigma: float = FUSED_SIGMA
    skewed_routing: bool = False
    """Time experts under a power law of exponent 1.2 instead of even routing."""
    link_efficiency: float = LINK_EFFICIENCY
    kv_dtype: str = "bf16"


@dataclass(frozen=True)
class LayerModel:
    """Layer times of `model` on `hardware`; raises MissingData where a kernel was never timed."""

    model: ModelSpec
    hardware: Hardware
    profile: Profile
    assume: Assumptions = field(default_factory=Assumptions)

    @classmethod
    def of(
        cls,
        model: ModelSpec,
        hardware: Hardware,
        assume: Assumptions | None = None,
        profile: Profile | None = None,
    ) -> LayerModel:
        """With `profile`, or the packaged one of the hardware."""
        if profile is None:
            if hardware.profile is None:
                raise MissingData(
                    f"{hardware.title} has no kernel timings; measure them with `afd profile` and pass --profile"
                )
            profile = built_in(hardware.profile)
        return cls(model, hardware, profile, assume or Assumptions())

    @property
    def small_kernels(self) -> tuple[float, float]:
        """(mean, standard deviation) in microseconds, of one layer and microbatch."""
        if self.assume.small_kernels_us is not None:
            return self.assume.small_kernels_us, SMALL_KERNELS_SD_US
        family = self.model.family.removesuffix("_text").replace("qwen3_vl_moe", "qwen3_moe")
        if family in SMALL_KERNELS_US:
            return SMALL_KERNELS_US[family], SMALL_KERNELS_SD_US
        return OTHER_FAMILIES_US, OTHER_FAMILIES_SD_US

    # One request batch on an attention GPU ----------------------------------------------------------

    def attention_us(self, batch: Values, context: Values, phase: str = "decode") -> Array:
        """FMHA of all layers, per MoE layer."""
        total = np.zeros(np.broadcast(np.asarray(batch), np.asarray(context)).shape)
        for group in self.model.attention:
            total = total + group.layers * self._group(group, phase)(batch, context)
        return total / self.model.moe_layers

    def _group(self, group: AttentionGroup, phase: str) -> Callable[[Values, Values], Array]:
        dtype = self.assume.kv_dtype
        if group.kind is AttentionKind.DSA:
            return self.profile.module(phase, dtype, f"dsa{group.query_heads}")
        component, width = self.profile.attention(phase, dtype, group.shape)
        window = group.window_tokens
        return lambda batch, context: component(
            batch * width, context if window is None else np.minimum(context, window)
        )

    def dense_us(self, tokens: Values) -> Array:
        """Everything but FMHA and experts, per MoE layer, for `tokens` tokens in one pass."""
        model = self.model
        total = np.zeros(np.shape(tokens))
        for group in model.attention:
            if group.kind is not AttentionKind.DSA:  # its table includes the projections
                for n, k in _projections(group, model.hidden):
                    total = total + group.layers * self._gemm(n, k, tokens, model.dense_precision)
        dense_layers = model.layers - model.moe_layers
        total = total + dense_layers * self._ffn(model.dense_width, tokens)
        total = total + model.moe_layers * self._ffn(model.shared_width, tokens)
        total = total + model.moe_layers * self._gemm(model.experts, model.hidden, tokens, Precision.BF16)
        norm = (
            MEMORY_OP_US
            + np.asarray(tokens)
            * model.hidden
            * 6.0
            / (MEMORY_EFFICIENCY * self.hardware.hbm_bytes_per_s)
            * 1e6
        )
        small = self.small_kernels[0] * np.maximum(1.0, np.asarray(tokens) / 512.0)
        return (total + model.layers * (2.0 * norm + small)) / model.moe_layers

    def _gemm(self, n: int, k: int, tokens: Values, precision: Precision) -> Array:
        dtype = "fp8" if precision is Precision.FP8 else "bf16"
        return self.profile.gemm(dtype)(n * k / 1e6, tokens)

    def _ffn(self, width: int, tokens: Values) -> Array:
        if width == 0:
            return np.zeros(np.shape(tokens))
        hidden, precision = self.model.hidden, self.model.dense_precision
        return self._gemm(2 * width, hidden, tokens, precision) + self._gemm(hidden, width, tokens, precision)

    def head_us(self, tokens: Values) -> Array:
        """LM head, once per step and microbatch."""
        return self._gemm(self.model.vocabulary, self.model.hidden, tokens, Precision.BF16)

    # Experts -----------------------------------------------------------------------------------------

    def experts_us(self, tokens: Values, ranks: int) -> Array:
        """Grouped GEMMs of one of `ranks` ranks, for `tokens` tokens over all ranks together."""
        model = self.model
        tiles, fill = random_footprint(tokens, experts=model.experts, top_k=model.top_k, ranks=float(ranks))
        component, per_tile = self._expert_component(ranks)
        return component(tiles * per_tile, fill)

    def _expert_component(self, ranks: int) -> tuple[Component, float]:
        model = self.model
        dtype = "nvfp4" if model.expert_precision is Precision.INT4 else str(model.expert_precision)
        if model.expert_precision is Precision.INT4:
            raise UnsupportedModel(
                f"{model.name}: no table times INT4 experts; measure them with `afd profile`"
            )
        shape = f"{model.hidden}x{model.expert_width}e{model.experts}k{model.top_k}"
        name = "moe_skewed" if self.assume.skewed_routing else "moe"
        if self.profile.has(name, dtype, shape):
            return self.profile.moe(dtype, shape, ranks, skewed=self.assume.skewed_routing), 1.0
        pooled = self.profile.moe_any_shape(dtype, skewed=self.assume.skewed_routing)
        return pooled, model.expert_params_each / 1e6

    def expert_time_us(self, tokens: Values, ranks: int) -> Array:
        """T_e of a disaggregated expert rank: its kernel, or the wire of its payload if that is longer."""
        kernel = self.assume.expert_efficiency * self.experts_us(tokens, ranks)
        return np.maximum(kernel, self.wire_us(tokens, ranks))

    def wire_us(self, tokens: Values, ranks: int) -> Array:
        """The longer way (BF16 results) of a microbatch over an expert GPU's link."""
        copies = copies_per_token(experts=self.model.experts, top_k=self.model.top_k, ranks=ranks)
        rows = np.asarray(tokens, dtype=float) * copies / ranks
        return rows * self.model.hidden * MOE_COMBINE_BYTES / self._link() * 1e6

    def transfer_us(self) -> float:
        """T_c: what the payload's pipelining through tiles cannot hide, one way."""
        tile = TILE_ROWS * self.model.hidden * (MOE_DISPATCH_BYTES + MOE_COMBINE_BYTES) / 2
        return LINK_LATENCY_US + tile / self._link() * 1e6

    def floor_us(self, tokens: float, ranks: int) -> float:
        """Weight-read floor of T_e."""
        return weight_floor_us(
            self.model, tokens=tokens, ranks=ranks, hbm_bytes_per_s=self.hardware.hbm_bytes_per_s
        )

    def _link(self) -> float:
        return self.hardware.required("link_bytes_per_s") * self.assume.link_efficiency

    # Colocated ---------------------------------------------------------------------------------------

    def exchange_us(self, direction: str, tokens: Values, ep: int) -> Array:
        """One all-to-all of `tokens` tokens a rank over `ep` ranks; zero where there is one rank."""
        if ep == 1:
            return np.zeros(np.shape(tokens))
        found = self._exchange(direction, ep, float(np.max(tokens)))
        if found is None:
            copies = copies_per_token(experts=self.model.experts, top_k=self.model.top_k, ranks=ep)
            element = MOE_DISPATCH_BYTES if direction == "dispatch" else MOE_COMBINE_BYTES
            payload = np.asarray(tokens) * copies * self.model.hidden * element
            return (
                EXCHANGE_LATENCY_US[direction]
                + payload / (EXCHANGE_EFFICIENCY * self.hardware.required("link_bytes_per_s")) * 1e6
            )
        component, scale = found
        latency = float(component(1.0))
        link = self.hardware.required("link_bytes_per_s")
        slower = (self.hardware.profile_link_bytes_per_s or link) / link
        return latency + (component(np.maximum(np.asarray(tokens) * scale, 1.0)) - latency) * slower

    def _exchange(self, direction: str, ep: int, tokens: float) -> tuple[Component, float] | None:
        """The timed all-to-all that an engine would pick: low latency for decode, else throughput."""
        kinds = (
            [f"{direction}_ll", direction, f"{direction}_ht"]
            if tokens <= 1024
            else [f"{direction}_ht", direction]
        )
        for kind in kinds:
            if ep in self.profile.exchange_widths(kind):
                return self.profile.exchange(kind, self.model.hidden, ep)
        return None

    def colocated_us(self, batch: Values, context: Values, ep: int) -> ColocatedLayer:
        """Parts of one layer of a colocated DP/EP group, `batch` requests a GPU."""
        return ColocatedLayer(
            self.attention_us(batch, context),
            self.dense_us(batch),
            self.experts_us(np.asarray(batch, dtype=float) * ep, ep),
            self.exchange_us("dispatch", batch, ep) + self.exchange_us("combine", batch, ep),
        )

    # Errors ------------------------------------------------------------------------------------------

    def attention_sigma(self, batch: float, context: float) -> float:
        worst = 0.0
        for group in self.model.attention:
            if group.kind is AttentionKind.DSA:
                worst = max(
                    worst,
                    self.profile.module("decode", self.assume.kv_dtype, f"dsa{group.query_heads}").error(
                        batch, context
                    ),
                )
            else:
                component, width = self.profile.attention("decode", self.assume.kv_dtype, group.shape)
                worst = max(worst, component.error(batch * width, context))
        return worst

    def dense_sigma(self, tokens: float) -> float:
        """Relative: the GEMMs' error and the spread of the small kernels, as independent parts."""
        whole = float(self.dense_us(tokens))
        small, sd = (us * self.model.layers / self.model.moe_layers for us in self.small_kernels)
        gemms = max(0.0, whole - small) * self.profile.gemm("fp8").sigma
        return math.hypot(gemms, sd) / whole

    def experts_sigma(self, tokens: float, ranks: int) -> float:
        tiles, fill = random_footprint(
            tokens, experts=self.model.experts, top_k=self.model.top_k, ranks=float(ranks)
        )
        component, per_tile = self._expert_component(ranks)
        return component.error(tiles * per_tile, fill)


@dataclass(frozen=True)
class ColocatedLayer:
    """Microseconds of one layer: attention, dense, experts, and the two all-to-alls."""

    attention: Array
    dense: Array
    experts: Array
    exchange: Array

    @property
    def serial(self) -> Array:
        return self.attention + self.dense + self.experts + self.exchange


def _projections(group: AttentionGroup, hidden: int) -> list[tuple[int, int]]:
    """(N, K) of the matrices around attention, as engines fuse them."""
    out = (hidden, group.query_heads * group.value_dim)
    if group.kind is AttentionKind.GQA:
        qkv = group.query_heads * group.key_dim + group.kv_heads * (group.key_dim + group.value_dim)
        return [(qkv, hidden), out]
    down = (group.query_rank + group.latent_rank + group.rope_dim, hidden)
    up = (group.query_heads * group.key_dim, group.query_rank or hidden)
    absorbed = group.query_heads * (group.key_dim - group.rope_dim + group.value_dim)
    return [down, up, (absorbed, group.latent_rank), out]
