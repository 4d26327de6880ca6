"""Rotary positions (Su et al. 2021) in the half-split layout: element i turns with i + width / 2."""

from __future__ import annotations

import torch


def rotation(
    positions: torch.Tensor, width: int, theta: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """positions [rows] -> cos and sin, each [rows, width] in `dtype`; angles are taken in float32."""
    frequency = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angle = positions.float().unsqueeze(1) * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [rows, heads, width], cos and sin [rows, width] -> [rows, heads, width]."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)
