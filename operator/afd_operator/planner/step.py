"""Time of one decode step of a unit with m microbatches and L MoE layers.

    lane     a0 a1 a0 a1 ...        T_a each
                \\     /
    link         c c                T_c each way
                  \\ /
    experts       e0 e1 ...         T_e each

A microbatch runs layer l+1 only when its results of layer l are back, so it goes round the loop
attention, link, experts, link: `T_a + T_e + 2 T_c`. Each lane and each expert rank serves m
microbatches a layer. A layer therefore takes the longest of three things:

    cycle = max( m T_a , m T_e , T_a + T_e + 2 T_c )
             attention   FFN     the loop is not filled: too few microbatches

If the pipeline is full (m max(T_a, T_e) >= T_a + T_e + 2 T_c) this is MegaScale-Infer's
`T_step = (T_a + T_e + 2 T_c) + T_f (m L - 1)` with T_f = max(T_a, T_e); with m = 1 it is the serial sum.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = float | NDArray[np.float64]


def loop_time(t_attention: Times, t_expert: Times, t_transfer: Times) -> Any:
    """One microbatch, one layer, nothing overlapped. A float for floats, an array for arrays, as all here."""
    return t_attention + t_expert + 2 * t_transfer


def layer_cycle(t_attention: Times, t_expert: Times, t_transfer: Times, microbatches: int) -> Any:
    """Steady time between two layers of one microbatch, in the unit of the inputs."""
    busiest = np.maximum(t_attention, t_expert) * microbatches
    return np.maximum(busiest, loop_time(t_attention, t_expert, t_transfer))


def step_time(
    t_attention: Times, t_expert: Times, t_transfer: Times, *, microbatches: int, layers: int
) -> Any:
    """T_step of `layers` MoE layers: L-1 cycles, and the last layer's way out of the pipeline."""
    slowest = np.maximum(t_attention, t_expert)
    drain = loop_time(t_attention, t_expert, t_transfer) + slowest * (microbatches - 1)
    return layer_cycle(t_attention, t_expert, t_transfer, microbatches) * (layers - 1) + drain


def megascale_step_time(
    t_attention: float, t_expert: float, t_transfer: float, *, microbatches: int, layers: int
) -> float:
    """MegaScale-Infer's form, for comparison; it assumes a pipeline that is always full."""
    slowest = max(t_attention, t_expert)
    return float(loop_time(t_attention, t_expert, t_transfer)) + slowest * (microbatches * layers - 1)
