"""What the planner needs to know of a mixture-of-experts model, and how it reads that from a config.json.

    weights   attention side: projections, dense and shared FFN, router, embeddings
              expert side:    moe_layers x experts x 3 x hidden x expert width
    KV        bytes per token that a request keeps, per attention group (windows stop growing)

A config is read by its `model_type` (READERS below). A type that is not there is refused: attention
variants differ in what they keep per token, and a wrong guess changes the batch by a factor.
Formulas: parameter counts follow the public modelling code of each family and are checked in the tests
against published totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from afd_operator.planner.errors import InvalidModel, UnsupportedModel

MAX_DIMENSION = 10**7
"""No dimension of a model is larger; a config that says so is broken, not big."""

BLOCK = 128
"""FP8 weights carry one FP32 scale per 128 x 128 block."""
DSA_INDEX_BYTES_PER_DIM = 1
DSA_INDEX_SCALE_BYTES = 4
"""A sparse-attention indexer keeps one FP8 key and its FP32 scale per token."""


class Precision(StrEnum):
    """Storage of a weight matrix; `bits` includes its scales."""

    BF16 = "bf16"
    FP8 = "fp8"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    INT4 = "int4"

    @property
    def bits(self) -> float:
        # MXFP4: 8-bit scale per 32 values; NVFP4: FP8 scale per 16; INT4: 16-bit scale per 32.
        return {"bf16": 16.0, "fp8": 8.0 + 32 / BLOCK**2, "mxfp4": 4.25, "nvfp4": 4.5, "int4": 4.5}[self]


class AttentionKind(StrEnum):
    GQA = "gqa"
    """Grouped queries: every KV head keeps a key and a value."""
    MLA = "mla"
    """Latent: one compressed vector and one rotary key a token, whatever the number of heads."""
    DSA = "dsa"
    """Latent with an indexer that picks the tokens attention reads."""


@dataclass(frozen=True, kw_only=True)
class AttentionGroup:
    """`layers` layers that attend alike."""

    kind: AttentionKind
    layers: int
    query_heads: int
    kv_heads: int = 0
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    latent_rank: int = 0
    rope_dim: int = 0
    query_rank: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_layers: int = 0

    def kv_bytes_per_token(self, kv_element_bytes: float) -> float:
        """Bytes that one token inside the window adds over all `layers`."""
        if self.kind is AttentionKind.GQA:
            return self.layers * self.kv_heads * (self.key_dim + self.value_dim) * kv_element_bytes
        latent = self.layers * (self.latent_rank + self.rope_dim) * kv_element_bytes
        index = self.index_layers * (self.index_dim * DSA_INDEX_BYTES_PER_DIM + DSA_INDEX_SCALE_BYTES)
        return latent + (index if self.kind is AttentionKind.DSA else 0)

    def kv_tokens(self, context: float) -> float:
        """Tokens that a request of `context` tokens keeps here."""
        return context if self.window_tokens is None else min(context, self.window_tokens)

    def projection_params(self, hidden: int) -> int:
        """Weights of all layers' query, key, value and output projections (and indexer)."""
        heads, out = self.query_heads, self.query_heads * self.value_dim * hidden
        if self.kind is AttentionKind.GQA:
            each = hidden * (heads * self.key_dim + self.kv_heads * (self.key_dim + self.value_dim)) + out
            return self.layers * each
        query = heads * self.key_dim
        queries = hidden * self.query_rank + self.query_rank * query if self.query_rank else hidden * query
        nope = self.key_dim - self.rope_dim
        latent = hidden * (self.latent_rank + self.rope_dim) + self.latent_rank * heads * (
            nope + self.value_dim
        )
        index = (self.query_rank or hidden) * self.index_heads * self.index_dim + hidden * (
            self.index_dim + self.index_heads
        )
        return self.layers * (queries + latent + out) + self.index_layers * index

    @property
    def shape(self) -> str:
        """Key of a profile's attention rows."""
        if self.kind is AttentionKind.GQA:
            return f"q{self.query_heads}kv{self.kv_heads}d{self.key_dim}"
        return f"{self.kind}{self.query_heads}"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One MoE model. Sizes in elements; `*_bytes` in bytes; raises InvalidModel if it is no model."""

    name: str
    hidden: int
    vocabulary: int
    layers: int
    moe_layers: int
    experts: int
    top_k: int
    expert_width: int
    dense_width: int
    shared_width: int
    attention: tuple[AttentionGroup, ...]
    expert_precision: Precision
    dense_precision: Precision
    tied_embeddings: bool = False
    max_context: int | None = None
    family: str = ""
    """`model_type` of the config: what a calibration belongs to."""

    def __post_init__(self) -> None:
        for field in ("hidden", "vocabulary", "layers", "moe_layers", "experts", "top_k", "expert_width"):
            _positive(self.name, field, getattr(self, field))
        if self.top_k > self.experts:
            raise InvalidModel(f"{self.name}: top-{self.top_k} of only {self.experts} experts")
        if self.moe_layers > self.layers:
            raise InvalidModel(f"{self.name}: {self.moe_layers} MoE layers of {self.layers} layers")
        if sum(group.layers for group in self.attention) != self.layers:
            raise InvalidModel(f"{self.name}: attention groups do not cover the {self.layers} layers")

    @property
    def expert_params_each(self) -> int:
        return 3 * self.hidden * self.expert_width

    @property
    def expert_bytes_each(self) -> float:
        """Bytes of one expert of one layer: what a tile of an otherwise idle expert must read."""
        return self.expert_params_each * self.expert_precision.bits / 8

    @property
    def expert_params(self) -> int:
        return self.moe_layers * self.experts * self.expert_params_each

    @property
    def expert_bytes(self) -> float:
        return self.expert_params * self.expert_precision.bits / 8

    @property
    def projection_params(self) -> int:
        return sum(group.projection_params(self.hidden) for group in self.attention)

    @property
    def dense_ffn_params(self) -> int:
        """FFN weights that stay beside attention: dense layers and shared experts."""
        dense = (self.layers - self.moe_layers) * 3 * self.hidden * self.dense_width
        return dense + self.moe_layers * 3 * self.hidden * self.shared_width

    @property
    def embedding_params(self) -> int:
        return self.hidden * self.vocabulary * (1 if self.tied_embeddings else 2)

    @property
    def dense_bytes(self) -> float:
        """Bytes of all that an attention GPU keeps; embeddings, router and LM head stay in BF16."""
        quantised = (self.projection_params + self.dense_ffn_params) * self.dense_precision.bits / 8
        router = self.moe_layers * self.hidden * self.experts
        return quantised + 2.0 * (self.embedding_params + router)

    @property
    def total_params(self) -> int:
        return self.expert_params + self.projection_params + self.dense_ffn_params + self.embedding_params

    @property
    def expert_share(self) -> float:
        """Share of the parameters that leave the attention GPU."""
        return self.expert_params / self.total_params

    def kv_bytes(self, context: float, kv_element_bytes: float) -> float:
        """KV bytes that a request of `context` tokens holds."""
        return sum(g.kv_bytes_per_token(kv_element_bytes) * g.kv_tokens(context) for g in self.attention)


def read_config(name: str, config: object, quantisation: object = None) -> ModelSpec:
    """The spec in a Hugging Face config.json; raises InvalidModel or UnsupportedModel.

    `quantisation` is the checkpoint's `hf_quant_config.json` where it has one: ModelOpt writes the
    precision of the weights there and not into config.json. Multimodal checkpoints nest the language
    model under `text_config`.
    """
    if not isinstance(config, Mapping):
        raise InvalidModel(f"{name}: config.json holds a {type(config).__name__}, not an object")
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise InvalidModel(f"{name}: text_config is not an object")
    kind = str(text.get("model_type") or config.get("model_type") or "")
    reader = READERS.get(kind)
    if reader is None:
        raise UnsupportedModel(f"{name}: {_why_not(kind, text)}")
    fields = dict(text)
    if fields.get("quantization_config") is None:
        fields["quantization_config"] = config.get("quantization_config")
    if isinstance(quantisation, Mapping):
        fields["quantization_config"] = quantisation.get("quantization", quantisation)
    return replace(reader(name, _Reader(name, fields)), family=kind)


def _why_not(kind: str, fields: Mapping[str, Any]) -> str:
    """The reason to refuse a model type that has no reader, as precisely as its config allows."""
    named = f"model type {kind!r}" if kind else "a config without model_type"
    if not any("expert" in field for field in fields):
        return f"{named} has no experts, so there is no FFN to take off the attention GPUs"
    if any("mamba" in field or "linear_" in field for field in fields):
        return f"{named} has recurrent layers, whose state is not KV and whose kernels no table here times"
    if "compress_ratios" in fields:
        return f"{named} compresses its KV by a ratio per layer, for which no formula is established"
    return f"{named} has no formula for what it keeps per token; known are {', '.join(sorted(READERS))}"


class _Reader:
    """Typed access to a config, with errors that name the field."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.name, self.fields = name, fields

    def number(self, *names: str) -> int:
        """The first of `names` that is present and not null: a positive integer."""
        for field in names:
            value = self.fields.get(field)
            if value is not None:
                return _positive(self.name, field, value)
        raise InvalidModel(f"{self.name}: config.json has no {' or '.join(names)}")

    def count(self, *names: str, default: int = 0) -> int:
        """Like `number`, but zero is legal and absence means `default`."""
        for field in names:
            value = self.fields.get(field)
            if value is not None and value != 0:
                return _positive(self.name, field, value)
        return default

    def layer_list(self, field: str, layers: int) -> list[Any] | None:
        """A per-layer list; raises InvalidModel when it does not have one entry a layer."""
        value = self.fields.get(field)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            raise InvalidModel(f"{self.name}: {field} does not have one entry for each of {layers} layers")
        return value


def _positive(name: str, field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_DIMENSION:
        raise InvalidModel(f"{name}: {field} is {value!r}, not a size between 1 and {MAX_DIMENSION}")
    return value


def _context_limit(r: _Reader) -> int | None:
    """Longest context, where the config states one. It is a limit, not a size: ten million is legal."""
    value = r.fields.get("max_position_embeddings")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidModel(f"{r.name}: max_position_embeddings is {value!r}, not a number of tokens")
    return value


def _precisions(r: _Reader) -> tuple[Precision, Precision]:
    """(experts, dense projections). Only FP8 checkpoints store attention below 16 bits."""
    quantisation = r.fields.get("quantization_config")
    if quantisation is None:
        return Precision.BF16, Precision.BF16
    if not isinstance(quantisation, Mapping):
        raise InvalidModel(f"{r.name}: quantization_config is not an object")
    method = str(quantisation.get("quant_method", "")).lower()
    algorithm = str(quantisation.get("quant_algo") or "").upper()
    if method == "fp8" or algorithm == "FP8":
        return Precision.FP8, Precision.FP8
    if method == "mxfp4":
        return Precision.MXFP4, Precision.BF16
    if algorithm == "NVFP4":
        return Precision.NVFP4, Precision.BF16
    groups = quantisation.get("config_groups")
    weights = [g.get("weights") for g in groups.values()] if isinstance(groups, Mapping) else []
    if weights and all(
        isinstance(w, Mapping) and (w.get("num_bits"), w.get("type")) == (4, "int") for w in weights
    ):
        return Precision.INT4, Precision.BF16
    named = algorithm or method or "an unnamed method"
    raise UnsupportedModel(f"{r.name}: weights quantised by {named!r} have no known size")


def _gqa(
    r: _Reader, layers: int, *, window: int | None = None, value_dim: int | None = None
) -> AttentionGroup:
    heads = r.number("num_attention_heads")
    kv_heads = r.number("num_key_value_heads")
    if heads % kv_heads:
        raise InvalidModel(f"{r.name}: {heads} attention heads do not divide over {kv_heads} KV heads")
    dim = r.count("head_dim") or r.number("hidden_size") // heads
    return AttentionGroup(
        kind=AttentionKind.GQA,
        layers=layers,
        query_heads=heads,
        kv_heads=kv_heads,
        key_dim=dim,
        value_dim=value_dim or dim,
        window_tokens=window,
    )


def _latent(r: _Reader, layers: int) -> AttentionGroup:
    sparse = r.count("index_topk") > 0
    types = r.layer_list("indexer_types", layers)
    index_layers = layers if types is None else sum(t == "full" for t in types)
    return AttentionGroup(
        kind=AttentionKind.DSA if sparse else AttentionKind.MLA,
        layers=layers,
        query_heads=r.number("num_attention_heads"),
        key_dim=r.number("qk_nope_head_dim") + r.number("qk_rope_head_dim"),
        value_dim=r.number("v_head_dim"),
        latent_rank=r.number("kv_lora_rank"),
        rope_dim=r.number("qk_rope_head_dim"),
        query_rank=r.count("q_lora_rank"),
        index_heads=r.count("index_n_heads") if sparse else 0,
        index_dim=r.count("index_head_dim") if sparse else 0,
        index_layers=index_layers if sparse and r.count("index_head_dim") else 0,
    )


def _windowed(
    r: _Reader, layers: int, is_windowed: list[bool], window: int, **dims: int
) -> tuple[AttentionGroup, ...]:
    inside = sum(is_windowed)
    groups = [(layers - inside, None), (inside, window)]
    return tuple(_gqa(r, count, window=w, **dims) for count, w in groups if count)


def _spec(
    name: str,
    r: _Reader,
    attention: tuple[AttentionGroup, ...],
    *,
    moe_layers: int,
    width: tuple[str, ...] = ("moe_intermediate_size",),
    dense: tuple[str, ...] = ("intermediate_size", "dense_intermediate_size"),
    shared_width: int = 0,
) -> ModelSpec:
    experts, dense_precision = _precisions(r)
    return ModelSpec(
        name=name,
        hidden=r.number("hidden_size"),
        vocabulary=r.number("vocab_size"),
        layers=r.number("num_hidden_layers"),
        moe_layers=moe_layers,
        experts=r.number("n_routed_experts", "num_experts", "num_local_experts"),
        top_k=r.number("num_experts_per_tok", "experts_per_token", "top_k_experts"),
        expert_width=r.number(*width),
        dense_width=r.count(*dense),
        shared_width=shared_width,
        attention=attention,
        expert_precision=experts,
        dense_precision=dense_precision,
        tied_embeddings=bool(r.fields.get("tie_word_embeddings") or False),
        max_context=_context_limit(r),
    )


def _qwen3(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    if r.count("decoder_sparse_step", default=1) != 1:
        raise UnsupportedModel(f"{name}: only some layers have experts (decoder_sparse_step)")
    return _spec(name, r, (_gqa(r, layers),), moe_layers=layers)


def _experts_everywhere(name: str, r: _Reader) -> ModelSpec:
    """MiniMax-M2 and Mixtral put the expert's width into `intermediate_size`."""
    layers = r.number("num_hidden_layers")
    return _spec(name, r, (_gqa(r, layers),), moe_layers=layers, width=("intermediate_size",), dense=())


def _dense_first(r: _Reader, layers: int) -> int:
    """MoE layers of a model whose first layers are dense."""
    types = r.layer_list("mlp_layer_types", layers)
    if types is not None:
        return sum(t != "dense" for t in types)
    frequency = r.fields.get("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(bool(x) for x in r.layer_list("moe_layer_freq", layers) or [])
    return layers - r.count("first_k_dense_replace")


def _deepseek(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    shared = r.count("n_shared_experts") * r.number("moe_intermediate_size")
    return _spec(name, r, (_latent(r, layers),), moe_layers=_dense_first(r, layers), shared_width=shared)


def _glm4(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    shared = r.count("n_shared_experts") * r.number("moe_intermediate_size")
    return _spec(name, r, (_gqa(r, layers),), moe_layers=_dense_first(r, layers), shared_width=shared)


def _gpt_oss(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    types = r.layer_list("layer_types", layers)
    # The released checkpoints alternate windowed and full layers; a config may leave the list out.
    windowed = [t == "sliding_attention" for t in types] if types else [i % 2 == 0 for i in range(layers)]
    attention = _windowed(r, layers, windowed, r.number("sliding_window"))
    return _spec(name, r, attention, moe_layers=layers, width=("intermediate_size",), dense=())


def _step3(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    types = r.layer_list("layer_types", layers)
    windowed = [t == "sliding_attention" for t in types] if types else [False] * layers
    attention = _windowed(r, layers, windowed, r.count("sliding_window", default=1))
    shared = r.count("share_expert_dim") or r.count("n_shared_experts") * r.number("moe_intermediate_size")
    return _spec(name, r, attention, moe_layers=_dense_first(r, layers), shared_width=shared)


def _mimo_flash(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    pattern = r.layer_list("hybrid_layer_pattern", layers)
    if pattern is None:
        raise InvalidModel(f"{name}: config.json has no hybrid_layer_pattern")
    attention = _windowed(
        r, layers, [bool(x) for x in pattern], r.number("sliding_window"), value_dim=r.number("v_head_dim")
    )
    return _spec(name, r, attention, moe_layers=_dense_first(r, layers))


def _llama4(name: str, r: _Reader) -> ModelSpec:
    layers = r.number("num_hidden_layers")
    # Three of four layers attend inside chunks; the fourth (no rotary embedding) sees everything.
    windowed = [(i + 1) % 4 != 0 for i in range(layers)]
    attention = _windowed(r, layers, windowed, r.number("attention_chunk_size"))
    moe_layers = layers // r.count("interleave_moe_layer_step", default=1)
    return _spec(
        name,
        r,
        attention,
        moe_layers=moe_layers,
        width=("intermediate_size",),
        dense=("intermediate_size_mlp",),
        shared_width=r.number("intermediate_size"),
    )


READERS: dict[str, Callable[[str, _Reader], ModelSpec]] = {
    "qwen3_moe": _qwen3,
    "qwen3_vl_moe_text": _qwen3,
    "minimax_m2": _experts_everywhere,
    "mixtral": _experts_everywhere,
    "deepseek_v3": _deepseek,
    "deepseek_v32": _deepseek,
    "kimi_k2": _deepseek,
    "glm_moe_dsa": _deepseek,
    "glm4_moe": _glm4,
    "gpt_oss": _gpt_oss,
    "step3p7": _step3,
    "mimo_v2_flash": _mimo_flash,
    "llama4_text": _llama4,
}
