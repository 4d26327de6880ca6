"""Timing on a GPU: the resident kernel alone, shared, and beside stock DeepGEMM, variants interleaved in one run.

Sustained load is power-limited (a prefill GEMM of 302 us becomes 355), so only figures of one run are compared, and
every repetition times each variant once before the next begins.
"""

from __future__ import annotations

import ctypes
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from afd_runtime.kernels.apk.build import cubin
from afd_runtime.kernels.apk.check import random_weights, room
from afd_runtime.kernels.apk.device import GpuExpertKernel, launch, load
from afd_runtime.kernels.apk.interface import LayerWeights, Run
from afd_runtime.kernels.apk.layout import Traffic
from afd_runtime.kernels.apk.numerics import quantise_rows
from afd_runtime.kernels.apk.shape import ExpertShape, Queue, pack
from afd_runtime.kernels.apk.tiles import Tiles


def kernel_for(
    shape: ExpertShape,
    layers: Sequence[LayerWeights],
    counts: dict[Queue, Sequence[int]],
    *,
    slots: int,
    multiprocessors: int,
    tiles: Tiles | None = None,
    cache: Path | None = None,
) -> GpuExpertKernel:
    """A kernel whose slots are all filled with random rows and described, ready to be published."""
    kernel = GpuExpertKernel(
        shape,
        layers,
        slots=dict.fromkeys(Queue, slots),
        capacity_rows={queue: max(room(some), 128) for queue, some in counts.items()},
        multiprocessors=multiprocessors,
        tiles=tiles,
        cache=cache,
    )
    for queue, some in counts.items():
        for slot, buffers in enumerate(kernel.slots(queue)):
            rows, scale = quantise_rows(torch.randn(buffers.x.shape, device="cuda"))
            buffers.x.copy_(rows)
            buffers.x_scale[:, : rows.shape[0]].copy_(scale)
            kernel.write_slot(Run(queue, slot + 1, slot), slot % len(layers), pack(some))
            torch.cuda.synchronize()
    return kernel


def batch(kernel: GpuExpertKernel, runs: dict[Queue, int]) -> Callable[[], float]:
    """A variant: all `runs` published before the launch; returns microseconds from launch to end."""

    def once() -> float:
        kernel.reset(runs, stop=True)
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(kernel.stream)
        kernel.launch()
        end.record(kernel.stream)
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    return once


def graph(calls: Sequence[Callable[[], object]]) -> Callable[[], float]:
    """A variant: the calls captured into one CUDA graph; returns microseconds of a replay."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for call in calls:
            call()

    def once() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        captured.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    return once


def interleave(variants: dict[str, Callable[[], float]], repetitions: int) -> dict[str, float]:
    """Median of each variant, one repetition of each in turn."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(repetitions + 2):
        for name, once in variants.items():
            taken = once()
            if number >= 2:
                times[name].append(taken)
    return {name: statistics.median(some) for name, some in times.items()}


@dataclass(frozen=True)
class Shared:
    """What one traffic run saw. Times in microseconds, converted with the clock of the measuring SM."""

    decode_us: list[float]
    claim_us: list[float]
    window_us: float
    prefill_runs: int
    prefill_us: float

    def quantile(self, share: float) -> float:
        return sorted(self.decode_us)[min(len(self.decode_us) - 1, int(share * len(self.decode_us)))]


def traffic(
    kernel: GpuExpertKernel,
    *,
    decode_runs: int,
    prefill_runs: int = 0,
    feed_prefill: bool,
    most_gap_us: float = 400.0,
    cache: Path | None = None,
    seed: int = 1,
) -> Shared:
    """Decode runs at random times, one out at a time, against as much prefill as fits the slots."""
    caller = load(cubin("traffic", cache).path, "afd_apk_traffic")
    chance = random.Random(seed)
    gaps = torch.tensor(
        [int(chance.uniform(5, most_gap_us) * 1700) for _ in range(max(decode_runs, 1))], dtype=torch.int32
    )
    gap, latency = gaps.cuda(), torch.zeros(len(gaps), dtype=torch.int64, device="cuda")
    claim, window = torch.zeros_like(latency), torch.zeros(4, dtype=torch.int64, device="cuda")
    kernel.reset({}, stop=False)
    params = kernel.params()
    struct = Traffic(
        queue=params.queue,
        control=params.control,
        gap_cycles=gap.data_ptr(),
        latency_cycles=latency.data_ptr(),
        claim_ns=claim.data_ptr(),
        claimed_ns=params.claimed_ns,
        window=window.data_ptr(),
        decode_runs=decode_runs,
        prefill_runs=prefill_runs,
        layers=kernel.layer_count,
        feed_prefill=int(feed_prefill),
    )
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    kernel.launch()
    launch(caller, struct, 1, 64, 0, side)
    torch.cuda.synchronize()
    cycles, ns, runs, prefill_cycles = window.tolist()
    per_us = cycles / (ns / 1e3)
    return Shared(
        decode_us=[one / per_us for one in latency.tolist()[:decode_runs]],
        claim_us=[one / 1e3 for one in claim.tolist()[:decode_runs]],
        window_us=ns / 1e3,
        prefill_runs=runs,
        prefill_us=prefill_cycles / per_us,
    )


def stock(
    layers: Sequence[LayerWeights], shape: ExpertShape, counts: Sequence[int], queue: Queue
) -> Callable[[], float]:
    """A variant: stock DeepGEMM's two grouped GEMMs of every layer, without activation between them, in one graph."""
    import deep_gemm

    e, rows = shape.experts, counts[0]
    assert all(count == rows for count in counts), "stock variants are measured with equal counts"

    def operand(k: int) -> tuple[torch.Tensor, torch.Tensor]:
        q, scale = quantise_rows(torch.randn(e * rows, k, device="cuda"))
        if queue is Queue.PREFILL:
            return q, deep_gemm.get_mn_major_tma_aligned_tensor(scale.T.contiguous())
        return q.view(e, rows, k), deep_gemm.get_mn_major_tma_aligned_tensor(
            scale.T.contiguous().view(e, rows, -1)
        )

    index = torch.arange(e, device="cuda", dtype=torch.int32).repeat_interleave(rows)
    masked = torch.full((e,), rows, device="cuda", dtype=torch.int32)

    def gemm(k: int, n: int, w: torch.Tensor, scale: torch.Tensor) -> Callable[[], object]:
        a = operand(k)
        out = torch.empty(*a[0].shape[:-1], n, dtype=torch.bfloat16, device="cuda")
        if queue is Queue.PREFILL:
            return lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, (w, scale), out, index)
        return lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(a, (w, scale), out, masked, rows)

    calls = []
    for weights in layers:
        calls.append(gemm(shape.hidden, 2 * shape.intermediate, weights.gate_up, weights.gate_up_scale))
        calls.append(gemm(shape.intermediate, shape.hidden, weights.down, weights.down_scale))
    return graph(calls)


def weights_for(shape: ExpertShape, layers: int) -> list[LayerWeights]:
    return [random_weights(shape) for _ in range(layers)]


assert ctypes.sizeof(Traffic) == 192
