"""Random Qwen3-MoE checkpoints of odd shapes, written by `transformers` itself: what the runtime reads
is then exactly what users' folders hold, and the same object is the oracle for its logits.

    python -m tests.models.random_checkpoint plain /tmp/plain
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

BASE: Mapping[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 80,
    "moe_intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "eos_token_id": 7,
}

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "top-1, weights not normalised": {"num_experts_per_tok": 1, "norm_topk_prob": False},
    "top-8 of 13 experts, one key-value head": {
        "num_experts": 13,
        "num_experts_per_tok": 8,
        "num_key_value_heads": 1,
    },
    "tied embeddings, head width is not hidden / heads": {
        "tie_word_embeddings": True,
        "hidden_size": 40,
        "head_dim": 24,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
    },
    "dense first layer, every head its own": {"mlp_only_layers": [0], "num_key_value_heads": 4},
    "experts in every second layer, biases": {
        "decoder_sparse_step": 2,
        "num_hidden_layers": 4,
        "attention_bias": True,
    },
    "five experts, other base": {
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}
"""Name -> what differs from BASE."""


def model(name: str, *, seed: int = 0, **overrides: Any) -> Qwen3MoeForCausalLM:
    """The named shape with random float32 weights; every weight, norms and biases as well, is random,
    so that one which is not read shows."""
    torch.manual_seed(seed)
    made = Qwen3MoeForCausalLM(Qwen3MoeConfig(**{**BASE, **SHAPES[name], **overrides})).eval()
    with torch.no_grad():
        for key, weight in made.named_parameters():
            if "norm" in key:
                weight.uniform_(0.5, 1.5)
            elif key.endswith("bias"):
                weight.uniform_(-0.5, 0.5)
    return made


def write(
    folder: Path,
    name: str,
    *,
    seed: int = 0,
    shard: str | None = None,
    dtype: torch.dtype = torch.float32,
    **overrides: Any,
) -> Qwen3MoeForCausalLM:
    """Write the named shape into `folder` and return it; `shard` ("100KB") splits the file."""
    made = model(name, seed=seed, **overrides).to(dtype)
    made.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a random checkpoint.")
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(arguments.folder, arguments.shape)
