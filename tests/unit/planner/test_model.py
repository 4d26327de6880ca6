"""Parameter and KV arithmetic against published totals; every packaged config plans or says why not."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from afd_operator.planner import catalog
from afd_operator.planner.errors import InvalidModel, PlannerError, UnsupportedModel
from afd_operator.planner.model import ModelSpec, Precision, read_config

# Routed and total parameters (billions), KV bytes per token in BF16 as the first token costs them.
PUBLISHED = {
    "Qwen/Qwen3-235B-A22B-FP8": (227.1, 235.0, 192_512),
    "Qwen/Qwen3-30B-A3B": (29.0, 30.5, 98_304),
    "MiniMaxAI/MiniMax-M2.7": (224.7, 228.6, 253_952),
    "zai-org/GLM-5.1-FP8": (724.8, 743.8, 100_152),
    "deepseek-ai/DeepSeek-V3": (653.9, 670.9, 70_272),
    "moonshotai/Kimi-K2-Instruct": (1014.7, 1026.2, 70_272),
    "openai/gpt-oss-120b": (114.7, 116.8, 73_728),
    "openai/gpt-oss-20b": (19.1, 20.9, 49_152),
    "stepfun-ai/Step-3.7-Flash-FP8": (190.3, 195.8, 184_320),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_kv_per_token(name: str) -> None:
    spec = catalog.model(name)
    routed, total, kv = PUBLISHED[name]
    assert round(spec.expert_params / 1e9, 1) == routed
    assert round(spec.total_params / 1e9, 1) == total
    assert spec.kv_bytes(1, 2.0) == kv


def test_expert_share_is_what_the_articles_say() -> None:
    assert catalog.model("MiniMaxAI/MiniMax-M2.7").expert_share == pytest.approx(0.98, abs=0.005)
    # ExpertPlex: 756 GB of FP8 weights for GLM-5.1, 230 GB for MiniMax-M2.7.
    for name, gigabytes in (("zai-org/GLM-5.1-FP8", 756), ("MiniMaxAI/MiniMax-M2.7", 230)):
        spec = catalog.model(name)
        assert (spec.expert_bytes + spec.dense_bytes) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_a_window_stops_growing() -> None:
    spec = catalog.model("openai/gpt-oss-120b")
    full = spec.kv_bytes(128, 2.0)
    assert spec.kv_bytes(256, 2.0) == full * 1.5, "half the layers keep 128 tokens only"


def test_precision_comes_from_modelopt_where_config_json_lacks_it() -> None:
    assert catalog.model("nvidia/DeepSeek-V3.1-NVFP4").expert_precision is Precision.NVFP4
    assert catalog.model("moonshotai/Kimi-K2.5").expert_precision is Precision.INT4


def test_every_packaged_config_is_read_or_refused_with_a_reason() -> None:
    read, refused = [], {}
    for name in catalog.names():
        try:
            read.append(catalog.model(name))
        except PlannerError as error:
            refused[name] = str(error)
    assert len(read) >= 40
    assert all(isinstance(spec, ModelSpec) for spec in read)
    assert all(len(text) > 40 for text in refused.values())
    assert "no experts" in refused["meta-llama/Meta-Llama-3.1-8B"]
    assert "recurrent" in refused["Qwen/Qwen3.5-397B-A17B"]
    assert "compresses" in refused["deepseek-ai/DeepSeek-V4-Pro"]


def _qwen(**changes: Any) -> dict[str, Any]:
    text = (files("afd_operator.planner") / "data" / "models.json").read_text()
    config = dict(json.loads(text)["models"]["Qwen/Qwen3-235B-A22B-FP8"]["config"])
    config.update(changes)
    return {k: v for k, v in config.items() if v != "absent"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"num_key_value_heads": 7}, "do not divide"),
        ({"num_experts": "absent"}, "has no n_routed_experts"),
        ({"num_experts": -4}, "num_experts is -4"),
        ({"num_experts_per_tok": 129}, "top-129 of only 128"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 10**12}, "not a size"),
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"moe_intermediate_size": 0.5}, "moe_intermediate_size is 0.5"),
        ({"max_position_embeddings": -1}, "max_position_embeddings"),
        ({"quantization_config": [1]}, "quantization_config is not an object"),
    ],
)
def test_malformed_configs_name_the_field(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidModel, match=says.replace("[", r"\[")):
        read_config("broken", _qwen(**changes))


@pytest.mark.parametrize("config", [None, 7, "text", [], {"text_config": 3}])
def test_what_is_no_config_at_all(config: object) -> None:
    with pytest.raises(InvalidModel):
        read_config("broken", config)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "without model_type"),
        ({"model_type": "brand_new", "num_experts": 8}, "no formula"),
        (_qwen(quantization_config={"quant_method": "awq"}), "'awq' have no known size"),
        (_qwen(decoder_sparse_step=2), "only some layers"),
    ],
)
def test_what_the_formulas_do_not_cover(config: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModel, match=says):
        read_config("other", config)


def test_an_unknown_name_offers_the_near_ones() -> None:
    with pytest.raises(InvalidModel, match="Qwen/Qwen3-235B-A22B"):
        catalog.model("Qwen/Qwen3-235B")
