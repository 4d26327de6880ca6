"""Checkpoint folders: what is read, by whom, and what is said of one that cannot be served."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models import random_checkpoint
from tests.unit.runtime_workers.conftest import Oracle, prompts
from tests.unit.runtime_workers.unit_driver import unit
from transformers import Qwen3MoeForCausalLM

from afd_runtime.models.checkpoint import INDEX, Checkpoint, ModelError
from afd_runtime.models.qwen3_moe import read_config
from afd_runtime.models.registry import family_of
from afd_runtime.models.split import ExpertSplit
from afd_runtime.transport import inprocess


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_checkpoint.write(tmp_path, "dense first layer, every head its own")
    return tmp_path


def change_config(folder: Path, **changed: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def load(folder: Path) -> None:
    """Both sides of it, as the processes of a unit with two expert workers do."""
    with Checkpoint(folder) as checkpoint:
        family = family_of(checkpoint)
        split = ExpertSplit(family.read_shape(checkpoint).experts, 2)
        family.load_attention(checkpoint, torch.float32)
        for worker in range(2):
            family.load_experts(checkpoint, split.owned(worker), torch.float32)


CONFIGS = (
    (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
        r"LlamaForCausalLM.*supported are Qwen3MoeForCausalLM",
    ),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu', only 'silu'"),
    ({"use_sliding_window": True}, "use_sliding_window is True"),
    ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is .*fp8"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type is 'yarn'.*rope_parameters"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "type is 'linear'.*rope_scaling"),
    ({"hidden_size": None}, "hidden_size is None"),
    ({"hidden_size": "48"}, "hidden_size is '48', a whole number"),
    ({"num_experts_per_tok": 0}, "num_experts_per_tok is 0"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok 9 of 8 experts"),
    ({"num_key_value_heads": 3}, "4 attention heads over 3 key-value heads"),
    ({"head_dim": 15}, "head_dim 15 is odd"),
    ({"mlp_only_layers": [0, 1, 2]}, "no layer has experts"),
    ({"mlp_only_layers": "0"}, "mlp_only_layers is '0'"),
    ({"norm_topk_prob": 1}, "norm_topk_prob is 1, true or false"),
    ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0, a positive number"),
    ({"eos_token_id": "end"}, "eos_token_id holds"),
    ({"vocab_size": 300}, r"embed_tokens.weight has shape \(211, 48\), config.json implies \(300, 48\)"),
    ({"moe_intermediate_size": 41}, r"experts.0.gate_proj.weight has shape \(40, 48\)"),
    ({"num_hidden_layers": 4}, "tensor model.layers.3.*is missing"),
)


@pytest.mark.parametrize(("changed", "text"), CONFIGS, ids=[", ".join(case[0]) for case in CONFIGS])
def test_a_config_that_cannot_be_served(folder: Path, changed: dict[str, Any], text: str) -> None:
    change_config(folder, **changed)
    with pytest.raises(ModelError, match=text):
        load(folder)


def no_lm_head(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["lm_head.weight"]


def fp8_router(tensors: dict[str, torch.Tensor]) -> None:
    name = "model.layers.1.mlp.gate.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (no_lm_head, "lm_head.weight is missing: the download is incomplete"),
        (fp8_router, "gate.weight is torch.float8"),
    ],
)
def test_tensors_that_cannot_be_used(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], None], text: str
) -> None:
    change_tensors(folder, change)
    with pytest.raises(ModelError, match=text):
        load(folder)


def test_a_file_that_is_cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"model.safetensors: .*missing or cut short"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("config.json", None, r"config.json: No such file .*Hugging Face model folder"),
        ("config.json", "{", "is not JSON"),
        ("config.json", "[]", "holds a list"),
        ("model.safetensors", None, r"has no \*.safetensors file"),
        (INDEX, "{}", "has no weight_map"),
        (INDEX, '{"weight_map": {"a": "../../etc/passwd"}}', "names the file '../../etc/passwd'"),
        (INDEX, '{"weight_map": {"model.embed_tokens.weight": "gone.safetensors"}}', "gone.safetensors: "),
    ],
)
def test_a_folder_that_is_no_checkpoint(folder: Path, name: str, content: str | None, text: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(ModelError, match=text):
        load(folder)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a folder"):
        load(tmp_path / "absent")


def test_each_side_reads_its_own_tensors_only(folder: Path) -> None:
    """A lane's folder may lack all experts; an expert worker's all but its own."""

    def drop(unwanted: Callable[[str], bool]) -> None:
        change_tensors(
            folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if unwanted(name)] and None
        )

    drop(lambda name: ".experts." in name and int(name.split(".experts.")[1].split(".")[0]) < 4)
    with Checkpoint(folder) as checkpoint:
        family = family_of(checkpoint)
        assert set(family.load_experts(checkpoint, range(4, 8), torch.float32).layers) == {1, 2}
    drop(lambda name: ".experts." in name)
    with Checkpoint(folder) as checkpoint:
        family_of(checkpoint).load_attention(checkpoint, torch.float32)


def test_sharded_files_with_an_index(tmp_path: Path) -> None:
    reference = random_checkpoint.write(tmp_path, "plain", shard="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert (tmp_path / INDEX).exists()
    oracle = Oracle(tmp_path, reference)
    with unit(tmp_path, inprocess.connect) as running:
        running.add(prompts(9), 1)
        logits = running.prefill()
    assert torch.allclose(
        logits["request-0"][0], oracle.logits(prompts(9)["request-0"])[-1], atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_checkpoints_are_computed_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    """The oracle reads the same narrow weights into float32 itself: a narrow model made wide again
    would keep the rounding of its rotary frequencies."""
    random_checkpoint.write(tmp_path, "plain", dtype=dtype)
    reference = Qwen3MoeForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with unit(tmp_path, inprocess.connect, workers=2) as running:
        running.add(prompts(20), 1)
        logits = running.prefill(every_row=True)
    expected = Oracle(tmp_path, reference).logits(prompts(20)["request-0"])
    assert torch.allclose(logits["request-0"], expected, atol=1e-4, rtol=0)


def test_older_config_files(folder: Path) -> None:
    """Before transformers 5: `rope_theta` beside `rope_scaling`, `num_experts`, no `head_dim`."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {"rope_theta": 5e5, "rope_scaling": None, "num_experts": config.pop("num_local_experts")}
    del config["rope_parameters"], config["head_dim"]
    path.write_text(json.dumps(config))
    with Checkpoint(folder) as checkpoint:
        read = read_config(checkpoint)
    assert (read.rope_theta, read.shape.experts, read.shape.head_dim) == (5e5, 8, 12)


def test_end_of_text_tokens_of_both_files(folder: Path) -> None:
    change_config(folder, eos_token_id=7)
    (folder / "generation_config.json").write_text('{"eos_token_id": [9, 7]}')
    with Checkpoint(folder) as checkpoint:
        assert read_config(checkpoint).shape.eos_token_ids == (7, 9)


SPLITS = (
    (8, 1, [8]),
    (8, 2, [4, 4]),
    (8, 3, [3, 3, 2]),
    (5, 3, [2, 2, 1]),
    (13, 4, [4, 4, 4, 1]),
    (4, 4, [1, 1, 1, 1]),
)


@pytest.mark.parametrize(("experts", "workers", "owned"), SPLITS)
def test_experts_are_dealt_in_contiguous_runs(experts: int, workers: int, owned: list[int]) -> None:
    split = ExpertSplit(experts, workers)
    runs = [split.owned(worker) for worker in range(workers)]
    assert [len(run) for run in runs] == owned
    assert [expert for run in runs for expert in run] == list(range(experts))


@pytest.mark.parametrize(
    ("experts", "workers", "text"),
    [
        (5, 4, "2 each, which leaves the last 1 without any: use 3 expert workers"),
        (4, 5, "leaves the last 1 without any"),
        (9, 8, "leaves the last 3 without any"),
        (0, 1, "0 experts"),
    ],
)
def test_a_worker_without_experts_is_refused(experts: int, workers: int, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        ExpertSplit(experts, workers)


def test_a_worker_that_does_not_exist() -> None:
    with pytest.raises(ModelError, match="expert worker 2 of a unit with 2"):
        ExpertSplit(4, 2).owned(2)
