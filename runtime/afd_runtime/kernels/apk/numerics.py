"""The arithmetic the kernel is held to: FP8 block formats and one expert's FFN in FP32.

    x (FP8, 1x128) ─ gate-up ─► gate, up (FP32) ─ silu(gate) * up ─► FP8, 1x128 ─ down ─► y (BF16)

A scale is max |value| of its block, at least 1e-4, over 448 (largest e4m3), as DeepGEMM's `per_token_cast_to_fp8`
and `per_block_cast_to_fp8` define it. Gate and up are never rounded to BF16.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from afd_runtime.kernels.apk.interface import LayerWeights

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
LEAST_AMAX = 1e-4

ERROR_BOUND = 1.2e-2
"""Largest ||y - reference|| / ||reference|| over one expert's rows of a run, each row divided by its norm.

BF16 results alone give 1.7e-3. The rest comes from requantised activations that fall on the other side of a rounding
boundary, because the tensor cores add up FP8 products with fewer bits than FP32: a step of e4m3 is 1/8 to 1/16 of a
value, and one activation in a hundred that takes the next step costs 0.09 x sqrt(0.01) = 9e-3. Seen on an H200: up to
9.1e-3 for a single row of 256 activations, up to 5.8e-3 for shapes of real models."""


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, k] -> FP8 [rows, k], scales [k / 128, rows] (column r belongs to row r)."""
    blocks = x.float().unflatten(1, (-1, 128))
    scale = blocks.abs().amax(dim=2).clamp(min=LEAST_AMAX) / FP8_MAX
    return (blocks / scale.unsqueeze(2)).to(FP8).flatten(1), scale.T.contiguous()


def quantise_blocks(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[experts, n, k] -> FP8 of the same shape, scales [experts, n / 128, k / 128]."""
    e, n, k = w.shape
    blocks = w.float().view(e, n // 128, 128, k // 128, 128)
    scale = blocks.abs().amax(dim=(2, 4), keepdim=True).clamp(min=LEAST_AMAX) / FP8_MAX
    return (blocks / scale).to(FP8).view(e, n, k), scale.view(e, n // 128, k // 128)


def dequantise_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Inverse of `quantise_rows`, FP32."""
    return (x.float().unflatten(1, (-1, 128)) * scale.T.unsqueeze(2)).flatten(1)


def dequantise_block(w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """One expert's [n, k] and [n / 128, k / 128] -> FP32 [n, k]."""
    return w.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)


def expert_ffn(x: torch.Tensor, x_scale: torch.Tensor, weights: LayerWeights, expert: int) -> torch.Tensor:
    """FP8 [rows, hidden], scales [hidden / 128, rows] -> BF16 [rows, hidden]."""
    gate_up = dequantise_block(weights.gate_up[expert], weights.gate_up_scale[expert])
    gate, up = F.linear(dequantise_rows(x, x_scale), gate_up).chunk(2, dim=1)
    activations = dequantise_rows(*quantise_rows(F.silu(gate) * up))
    down = dequantise_block(weights.down[expert], weights.down_scale[expert])
    return F.linear(activations, down).bfloat16()


def relative_error(have: torch.Tensor, want: torch.Tensor) -> float:
    """||have - want|| / ||want||; NaN if anything is."""
    return float((have.double() - want.double()).norm() / want.double().norm())
