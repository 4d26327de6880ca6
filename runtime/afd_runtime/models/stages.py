"""The two sides of a model as the runtime calls them. Families implement `AttentionStage`; the
expert side of every family so far is SwiGLU experts, so `ExpertStage` is one class.

One layer on a lane:

    x = attend(layer, x)                              norm, QKV, attention over KV pages, residual
    MoE layer:    routed = route(layer, x)            norm, router: what is dispatched
                  x = x + combined rows of all expert workers
    dense layer:  x = dense(layer, x)                 norm, MLP, residual
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from afd_runtime.kernels.grouped_ffn import grouped_ffn, order_by_expert
from afd_runtime.kernels.paged_attention import LayerCache, PagedBatch
from afd_runtime.models.shape import ModelShape


@dataclass(frozen=True)
class Routed:
    """What a MoE layer's experts are asked for: hidden [rows, hidden], expert ids and weights [rows, k]."""

    hidden: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor


class AttentionStage(Protocol):
    """Everything of the model but the routed experts. Rows are tokens of any sequences."""

    shape: ModelShape
    dtype: torch.dtype

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """[rows] -> [rows, hidden]"""

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[rows] -> cos and sin [rows, head_dim], shared by all layers"""

    def attend(
        self,
        layer: int,
        x: torch.Tensor,
        batch: PagedBatch,
        rotation: tuple[torch.Tensor, torch.Tensor],
        cache: LayerCache,
    ) -> torch.Tensor:
        """[rows, hidden] -> [rows, hidden]; writes the rows' keys and values into `cache` first"""

    def route(self, layer: int, x: torch.Tensor) -> Routed:
        """[rows, hidden] -> what to dispatch; MoE layers only"""

    def dense(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] -> [rows, hidden]; the other layers only"""

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] after the last layer -> [rows, vocab] in float32"""


@dataclass(frozen=True)
class ExpertWeights:
    """One layer's owned experts: gate_up [owned, 2 * inner, hidden] (gate first) and down [owned,
    hidden, inner]."""

    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class ExpertStage:
    """The slice of every MoE layer's experts that one worker owns."""

    shape: ModelShape
    dtype: torch.dtype
    owned: range
    layers: dict[int, ExpertWeights]

    def forward(
        self, layer: int, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """The weighted partial sum over the owned experts, [rows, hidden].

        hidden [rows, hidden]; ids [rows, k] with -1 for an expert that lives elsewhere; weights
        [rows, k]. A row without any owned expert yields zeros."""
        experts = self.layers[layer]
        owned = ids - self.owned.start
        order = order_by_expert(torch.where(ids < 0, -1, owned), len(self.owned))
        results = grouped_ffn(hidden[order.rows], order.counts, experts.gate_up, experts.down)
        results *= weights.reshape(-1)[order.picks].to(results.dtype).unsqueeze(1)
        return torch.zeros_like(hidden).index_add_(0, order.rows, results)
