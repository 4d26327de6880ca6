"""The router: which experts a row goes to, and with which weights."""

from __future__ import annotations

import torch


def route_top_k(logits: torch.Tensor, top_k: int, normalise: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """logits [rows, experts] -> ids int32 [rows, top_k], weights float32 [rows, top_k].

    The softmax is over all experts and in float32, the top k are chosen from it, and with
    `normalise` their weights are scaled to sum to one; then they are rounded to the logits' dtype:
    the order of `transformers`' Qwen3MoeTopKRouter, which decides ties and low bits."""
    weights, ids = torch.softmax(logits, dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    if normalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ids.to(torch.int32), weights.to(logits.dtype).float()
