"""Qwen3-MoE (`Qwen3MoeForCausalLM`): grouped-query attention with RMS-normed heads and rotary
positions, SwiGLU experts behind a softmax router, optionally dense layers in between.

Names and arithmetic follow `transformers`' modeling_qwen3_moe; logits agree with it to 1e-4 in
float32. Layers in `mlp_only_layers`, and those that `decoder_sparse_step` skips, are dense.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from afd_runtime.kernels.grouped_ffn import swiglu_ffn
from afd_runtime.kernels.paged_attention import LayerCache, PagedBatch, paged_attention
from afd_runtime.kernels.rms_norm import rms_norm
from afd_runtime.kernels.rope import rotate, rotation
from afd_runtime.kernels.router import route_top_k
from afd_runtime.models.checkpoint import Checkpoint, ModelError
from afd_runtime.models.fields import Fields
from afd_runtime.models.shape import ModelShape
from afd_runtime.models.stages import ExpertStage, ExpertWeights, Routed


@dataclass(frozen=True, kw_only=True)
class Config:
    """config.json, checked: only what changes the arithmetic, beside the common `shape`."""

    shape: ModelShape
    heads: int
    dense_inner: int
    expert_inner: int
    eps: float
    rope_theta: float
    normalise_top_k: bool
    attention_bias: bool
    tied: bool

    @property
    def query_width(self) -> int:
        return self.heads * self.shape.head_dim

    @property
    def kv_width(self) -> int:
        return self.shape.kv_heads * self.shape.head_dim


def read_config(checkpoint: Checkpoint) -> Config:
    """Raises ModelError for a field that is wrong or asks for what this file does not compute."""
    fields = Fields(checkpoint.config)
    fields.require("hidden_act", "silu", why="experts are SwiGLU")
    fields.require("use_sliding_window", False, why="every layer attends to the whole context")
    fields.require("quantization_config", None, why="weights are read as bf16, f16 or f32")
    layers, hidden = fields.count("num_hidden_layers"), fields.count("hidden_size")
    heads, experts = fields.count("num_attention_heads"), fields.count("num_experts", "num_local_experts")
    step, dense_only = fields.count("decoder_sparse_step", default=1), fields.counts("mlp_only_layers")
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        vocab=fields.count("vocab_size"),
        kv_heads=fields.count("num_key_value_heads", default=heads),
        head_dim=fields.count("head_dim", default=hidden // heads),
        experts=experts,
        top_k=fields.count("num_experts_per_tok"),
        moe_layers=tuple(n for n in range(layers) if n not in dense_only and (n + 1) % step == 0),
        max_position=fields.count("max_position_embeddings"),
        eos_token_ids=checkpoint.eos_token_ids(),
    )
    _check(shape, heads)
    return Config(
        shape=shape,
        heads=heads,
        dense_inner=fields.count("intermediate_size"),
        expert_inner=fields.count("moe_intermediate_size"),
        eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(fields),
        normalise_top_k=fields.flag("norm_topk_prob"),
        attention_bias=fields.flag("attention_bias"),
        tied=fields.flag("tie_word_embeddings"),
    )


def _check(shape: ModelShape, heads: int) -> None:
    if heads % shape.kv_heads:
        raise ModelError(f"config.json: {heads} attention heads over {shape.kv_heads} key-value heads")
    if shape.head_dim % 2:
        raise ModelError(f"config.json: head_dim {shape.head_dim} is odd, rotary positions need pairs")
    if shape.top_k > shape.experts:
        raise ModelError(f"config.json: num_experts_per_tok {shape.top_k} of {shape.experts} experts")
    if not shape.moe_layers:
        raise ModelError("config.json: no layer has experts, there is nothing to disaggregate")


def _rope_theta(fields: Fields) -> float:
    """The base of the rotary frequencies. Written as `rope_theta` beside `rope_scaling`, or (since
    transformers 5) as one object `rope_parameters`."""
    why = "other rotary scalings change every position; serve the checkpoint without it"
    for name in ("rope_scaling", "rope_parameters"):
        if (table := fields.table(name)) is not None:
            table.require("rope_type", "default", why=f"{name}: {why}")
            table.require("type", "default", why=f"{name}: {why}")
            if name == "rope_parameters":
                return table.number("rope_theta", 10_000.0)
    return fields.number("rope_theta", 10_000.0)


def read_shape(checkpoint: Checkpoint) -> ModelShape:
    return read_config(checkpoint).shape


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer's weights on the attention side. `router` for a MoE layer, `dense` (gate_up, down)
    for a dense one."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    query_norm: torch.Tensor
    key_norm: torch.Tensor
    output: torch.Tensor
    output_bias: torch.Tensor | None
    ffn_norm: torch.Tensor
    router: torch.Tensor | None
    dense: tuple[torch.Tensor, torch.Tensor] | None


class Qwen3MoeAttention:
    """The attention side (see `stages.AttentionStage`)."""

    def __init__(
        self,
        config: Config,
        dtype: torch.dtype,
        embedding: torch.Tensor,
        layers: list[Layer],
        norm: torch.Tensor,
        head: torch.Tensor,
    ) -> None:
        self.shape = config.shape
        self.dtype = dtype
        self._config = config
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self._embedding)

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rotation(positions, self.shape.head_dim, self._config.rope_theta, self.dtype)

    def attend(
        self,
        layer: int,
        x: torch.Tensor,
        batch: PagedBatch,
        rotation: tuple[torch.Tensor, torch.Tensor],
        cache: LayerCache,
    ) -> torch.Tensor:
        config, weights = self._config, self._layers[layer]
        h = rms_norm(x, weights.input_norm, config.eps)
        widths = [config.query_width, config.kv_width, config.kv_width]
        q, k, v = (
            part.view(part.shape[0], -1, self.shape.head_dim)
            for part in torch.split(F.linear(h, weights.qkv, weights.qkv_bias), widths, dim=-1)
        )
        q = rotate(rms_norm(q, weights.query_norm, config.eps), *rotation)
        k = rotate(rms_norm(k, weights.key_norm, config.eps), *rotation)
        cache.write(batch.write_slots, k, v)
        attended = paged_attention(q, cache, batch)
        return x + F.linear(attended, weights.output, weights.output_bias)

    def route(self, layer: int, x: torch.Tensor) -> Routed:
        weights = self._layers[layer]
        assert weights.router is not None, f"layer {layer} is dense"
        h = rms_norm(x, weights.ffn_norm, self._config.eps)
        ids, scores = route_top_k(F.linear(h, weights.router), self.shape.top_k, self._config.normalise_top_k)
        return Routed(h, ids, scores)

    def dense(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        weights = self._layers[layer]
        assert weights.dense is not None, f"layer {layer} has experts"
        return x + swiglu_ffn(rms_norm(x, weights.ffn_norm, self._config.eps), *weights.dense)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(rms_norm(x, self._norm, self._config.eps), self._head).float()


def load_attention(checkpoint: Checkpoint, dtype: torch.dtype) -> Qwen3MoeAttention:
    """Read every tensor but the routed experts'; raises ModelError."""
    config = read_config(checkpoint)
    shape = config.shape
    embedding = checkpoint.take("model.embed_tokens.weight", (shape.vocab, shape.hidden), dtype)
    head = embedding if config.tied else checkpoint.take("lm_head.weight", (shape.vocab, shape.hidden), dtype)
    return Qwen3MoeAttention(
        config,
        dtype,
        embedding,
        [_load_layer(checkpoint, config, number, dtype) for number in range(shape.layers)],
        checkpoint.take("model.norm.weight", (shape.hidden,), dtype),
        head,
    )


def _load_layer(checkpoint: Checkpoint, config: Config, number: int, dtype: torch.dtype) -> Layer:
    shape, prefix = config.shape, f"model.layers.{number}"
    hidden, query, kv = shape.hidden, config.query_width, config.kv_width

    def take(name: str, *size: int) -> torch.Tensor:
        return checkpoint.take(f"{prefix}.{name}", size, dtype)

    moe, bias = number in shape.moe_layers, config.attention_bias
    parts = (("q_proj", query), ("k_proj", kv), ("v_proj", kv))
    return Layer(
        input_norm=take("input_layernorm.weight", hidden),
        qkv=torch.cat([take(f"self_attn.{name}.weight", width, hidden) for name, width in parts]),
        qkv_bias=torch.cat([take(f"self_attn.{name}.bias", width) for name, width in parts])
        if bias
        else None,
        query_norm=take("self_attn.q_norm.weight", shape.head_dim),
        key_norm=take("self_attn.k_norm.weight", shape.head_dim),
        output=take("self_attn.o_proj.weight", hidden, query),
        output_bias=take("self_attn.o_proj.bias", hidden) if bias else None,
        ffn_norm=take("post_attention_layernorm.weight", hidden),
        router=take("mlp.gate.weight", shape.experts, hidden) if moe else None,
        dense=None if moe else _load_ffn(checkpoint, f"{prefix}.mlp", hidden, config.dense_inner, dtype),
    )


def _load_ffn(
    checkpoint: Checkpoint, prefix: str, hidden: int, inner: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    gate_up = torch.empty(2 * inner, hidden, dtype=dtype)
    checkpoint.copy_into(gate_up[:inner], f"{prefix}.gate_proj.weight")
    checkpoint.copy_into(gate_up[inner:], f"{prefix}.up_proj.weight")
    return gate_up, checkpoint.take(f"{prefix}.down_proj.weight", (hidden, inner), dtype)


def load_experts(checkpoint: Checkpoint, owned: range, dtype: torch.dtype) -> ExpertStage:
    """Read the `owned` experts of every MoE layer and nothing else; raises ModelError."""
    config = read_config(checkpoint)
    shape, inner = config.shape, config.expert_inner
    layers: dict[int, ExpertWeights] = {}
    for number in shape.moe_layers:
        gate_up = torch.empty(len(owned), 2 * inner, shape.hidden, dtype=dtype)
        down = torch.empty(len(owned), shape.hidden, inner, dtype=dtype)
        for place, expert in enumerate(owned):
            prefix = f"model.layers.{number}.mlp.experts.{expert}"
            checkpoint.copy_into(gate_up[place, :inner], f"{prefix}.gate_proj.weight")
            checkpoint.copy_into(gate_up[place, inner:], f"{prefix}.up_proj.weight")
            checkpoint.copy_into(down[place], f"{prefix}.down_proj.weight")
        layers[number] = ExpertWeights(gate_up, down)
    return ExpertStage(shape, dtype, owned, layers)
