"""Architecture -> family. A family is a module with the three functions of `Family`."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

import torch

from afd_runtime.models.checkpoint import Checkpoint, ModelError
from afd_runtime.models.shape import ModelShape
from afd_runtime.models.stages import AttentionStage, ExpertStage

FAMILIES = {"qwen3_moe": "afd_runtime.models.qwen3_moe"}
"""config.json's `model_type` -> module, imported when asked for."""
ARCHITECTURES = {"Qwen3MoeForCausalLM": "qwen3_moe"}


class Family(Protocol):
    """What a family's module offers. All three raise ModelError."""

    def read_shape(self, checkpoint: Checkpoint) -> ModelShape: ...

    def load_attention(self, checkpoint: Checkpoint, dtype: torch.dtype) -> AttentionStage: ...

    def load_experts(self, checkpoint: Checkpoint, owned: range, dtype: torch.dtype) -> ExpertStage: ...


def family_of(checkpoint: Checkpoint) -> Family:
    """The family that serves `checkpoint`; raises ModelError naming those there are."""
    config = checkpoint.config
    kinds = [ARCHITECTURES.get(name, "") for name in config.get("architectures") or []]
    for kind in [*kinds, config.get("model_type")]:
        if kind in FAMILIES:
            return cast(Family, importlib.import_module(FAMILIES[kind]))
    raise ModelError(
        f"{checkpoint.folder}: architectures {config.get('architectures')}, model_type "
        f"{config.get('model_type')!r} are not supported; supported are {', '.join(sorted(ARCHITECTURES))}"
    )
