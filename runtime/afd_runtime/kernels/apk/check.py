"""Correctness on a GPU: every case against the FP32 reference, outputs poisoned first, each unit stored once.

A case publishes a few runs of both queues with fresh random rows into recycled slots. While the kernel is resident
only copies run beside it (a module loaded now could wait for the whole device), so rows are made before the launch
and results compared after the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from afd_runtime.kernels.apk.device import GpuExpertKernel
from afd_runtime.kernels.apk.interface import LayerWeights, Run, SlotBuffers
from afd_runtime.kernels.apk.numerics import (
    ERROR_BOUND,
    expert_ffn,
    quantise_blocks,
    quantise_rows,
    relative_error,
)
from afd_runtime.kernels.apk.shape import ROW_ALIGN, ExpertShape, Extent, Queue, ceil_div, pack
from afd_runtime.kernels.apk.tiles import Tiles

SPARE = 16
"""Multiprocessors left to the copies and kernels that run beside the resident one."""


@dataclass(frozen=True)
class Case:
    name: str
    shape: ExpertShape
    decode: tuple[tuple[int, ...], ...]
    """Rows of each expert, for each decode run."""
    prefill: tuple[tuple[int, ...], ...]
    chunk_blocks: int = 8
    budget: int | None = None
    layers: int = 2


SMALL = ExpertShape(experts=4, hidden=512, intermediate=256)

CASES = (
    Case("one narrow tile", SMALL, ((5, 0, 0, 0),), ()),
    Case("one wide tile", SMALL, (), ((100, 0, 0, 0),)),
    Case(
        "no rows at all, between others",
        SMALL,
        ((3, 0, 1, 0), (0, 0, 0, 0), (32, 1, 31, 16)),
        ((0, 0, 0, 0), (1, 0, 129, 0)),
    ),
    Case(
        "decode rows on both sides of every tile border", SMALL, ((32, 33, 64, 65), (127, 128, 129, 512)), ()
    ),
    Case("very uneven prefill", SMALL, (), ((2048, 1, 0, 130), (0, 0, 0, 3000))),
    Case(
        "both queues, slots recycled",
        SMALL,
        ((16, 16, 16, 16), (1, 40, 0, 7)) * 8,
        ((512, 300, 7, 0),) * 6,
        chunk_blocks=1,
    ),
    Case(
        "wide decode parks prefill",
        SMALL,
        ((100, 200, 64, 33),) * 8,
        ((1024, 1024, 1024, 1024),) * 3,
        chunk_blocks=1,
    ),
    Case(
        "budget of 8",
        SMALL,
        ((16, 16, 16, 16),) * 6,
        ((1024, 1024, 1024, 1024),) * 3,
        chunk_blocks=2,
        budget=8,
    ),
    Case("128 experts", ExpertShape(128, 512, 256), ((1, 0, 3, 40) * 32,), ((5, 0, 130, 1) * 32,)),
    Case("256 experts", ExpertShape(256, 512, 256), ((2, 0, 1, 33) * 64,), ((7, 0, 1, 129) * 64,)),
    Case("Qwen3-30B-A3B", ExpertShape(8, 2048, 768), ((16,) * 8, (1, 2, 3, 4, 5, 6, 7, 60)), ((256,) * 8,)),
    Case("Qwen3-235B-A22B", ExpertShape(8, 4096, 1536), ((16,) * 8,), ((256,) * 8,)),
    Case(
        "MiniMax-M2.7",
        ExpertShape(8, 3072, 1536),
        ((16,) * 8, (33,) * 8),
        ((1024, 0, 77, 1, 300, 2, 128, 5),),
    ),
    Case("GLM-4.5-Air", ExpertShape(8, 4096, 1408), ((16,) * 8,), ((256,) * 8,)),
    Case("GLM-5.1", ExpertShape(8, 6144, 2048), ((16,) * 8, (128,) * 8), ((300,) * 8,)),
    Case("DeepSeek-V3", ExpertShape(8, 7168, 2048), ((16,) * 8,), ((300,) * 8,)),
)


def random_weights(shape: ExpertShape) -> LayerWeights:
    """Random weights of usual size, so that activations neither vanish nor overflow."""
    e, h, i = shape.experts, shape.hidden, shape.intermediate
    up = torch.randn(e, 2 * i, h, device="cuda", dtype=torch.bfloat16) / h**0.5
    down = torch.randn(e, h, i, device="cuda", dtype=torch.bfloat16) / i**0.5
    parts = [[quantise_blocks(w[n : n + 1]) for n in range(e)] for w in (up, down)]
    gate_up, down_ = ([torch.cat([part[j] for part in some]) for j in range(2)] for some in parts)
    return LayerWeights(gate_up[0], gate_up[1], down_[0], down_[1])


@dataclass
class Prepared:
    """One run's rows, poisoned where there are none, and room for its results."""

    queue: Queue
    layer: int
    extents: tuple[Extent, ...]
    buffers: SlotBuffers


def prepare(kernel: GpuExpertKernel, queue: Queue, counts: Sequence[int], layer: int) -> Prepared:
    """Random rows of three decades of magnitude; NaN everywhere else and in all results."""
    like, extents = kernel.slots(queue)[0], pack(counts)
    x, scale = (
        torch.full_like(like.x.view(torch.uint8), 0x7F).view(like.x.dtype),
        torch.full_like(like.x_scale, float("nan")),
    )
    for rows in rows_of(extents):
        magnitude = 10 ** torch.empty(rows.stop - rows.start, 1, device="cuda").uniform_(-1, 2)
        x[rows], scale[:, rows] = quantise_rows(
            torch.randn(len(magnitude), kernel.shape.hidden, device="cuda") * magnitude
        )
    return Prepared(queue, layer, extents, SlotBuffers(x, scale, torch.full_like(like.y, float("nan"))))


def rows_of(extents: Sequence[Extent]) -> list[slice]:
    return [slice(extent.first, extent.first + extent.rows) for extent in extents if extent.rows]


def compare(prepared: Prepared, weights: LayerWeights) -> float:
    """Largest relative error of an expert's rows; raises AssertionError beyond the bound."""
    worst, buffers = 0.0, prepared.buffers
    for expert, extent in enumerate(prepared.extents):
        if extent.rows:
            rows = slice(extent.first, extent.first + extent.rows)
            want = expert_ffn(buffers.x[rows], buffers.x_scale[:, rows], weights, expert)
            # Rows differ by decades: divided by their norm, every row counts the same.
            norm = want.float().norm(dim=1, keepdim=True)
            error = relative_error(buffers.y[rows].float() / norm, want.float() / norm)
            where = f"{prepared.queue.name.lower()}, expert {expert}, {extent.rows} rows"
            assert error <= ERROR_BOUND, f"{where}: error {error:.2e}, bound {ERROR_BOUND:.0e}"
            worst = max(worst, error)
    return worst


def run_case(case: Case) -> float:
    """Runs all runs of a case through two slots a queue; returns the largest error."""
    counts = {Queue.DECODE: case.decode, Queue.PREFILL: case.prefill}
    units = {queue: [case.shape.units(queue, run) for run in runs] for queue, runs in counts.items()}
    layers = [random_weights(case.shape) for _ in range(case.layers)]
    kernel = GpuExpertKernel(
        case.shape,
        layers,
        slots={Queue.DECODE: 2, Queue.PREFILL: 2},
        capacity_rows={queue: max([room(run) for run in runs] + [128]) for queue, runs in counts.items()},
        multiprocessors=torch.cuda.get_device_properties(0).multi_processor_count - SPARE,
        tiles=Tiles(chunk_blocks=case.chunk_blocks),
        log_runs=max(len(case.decode), len(case.prefill)),
        log_units=max(max(some, default=0) for some in units.values()),
    )
    if case.budget:
        kernel.set_budget(case.budget)
    work = [
        prepare(kernel, queue, run, n % case.layers)
        for queue, runs in counts.items()
        for n, run in enumerate(runs)
    ]
    torch.cuda.synchronize()
    kernel.launch()
    feed(kernel, work)
    kernel.stop()
    for queue, some in units.items():
        for number, count in enumerate(some):
            log = kernel.log[queue, number]
            assert bool((log[:count] == 1).all()), (
                f"{queue.name} run {number + 1}: units stored {log[:count].tolist()} times"
            )
            assert not bool(log[count:].any()), (
                f"{queue.name} run {number + 1}: stored units it does not have"
            )
    return max(compare(prepared, layers[prepared.layer]) for prepared in work)


def room(counts: Sequence[int]) -> int:
    return sum(ceil_div(rows, ROW_ALIGN) * ROW_ALIGN for rows in counts)


def feed(kernel: GpuExpertKernel, work: Sequence[Prepared]) -> None:
    """Publishes all runs, both queues as far ahead as their slots allow, and collects the results."""
    waiting = {queue: deque(one for one in work if one.queue is queue) for queue in Queue}
    flying: dict[Queue, deque[tuple[Run, Prepared]]] = {queue: deque() for queue in Queue}
    while any(waiting.values()) or any(flying.values()):
        for queue in Queue:
            if waiting[queue] and len(flying[queue]) < len(kernel.slots(queue)):
                run, one = kernel.open(queue), waiting[queue].popleft()
                slot = kernel.buffers(run)
                slot.x.copy_(one.buffers.x)
                slot.x_scale.copy_(one.buffers.x_scale)
                slot.y.copy_(one.buffers.y)
                kernel.publish(run, layer=one.layer, extents=one.extents)
                flying[queue].append((run, one))
            elif flying[queue]:
                run, one = flying[queue].popleft()
                kernel.wait(run, 20)
                one.buffers.y.copy_(kernel.buffers(run).y)
                torch.cuda.current_stream().synchronize()


def run_all(cases: tuple[Case, ...] = CASES, say: Callable[[str], None] = print) -> int:
    """Runs the cases; returns how many failed."""
    failed = 0
    for case in cases:
        try:
            say(f"ok    {case.name}: largest error {run_case(case):.2e}")
        except Exception as error:
            failed += 1
            say(f"FAIL  {case.name}: {type(error).__name__}: {error}")
            if not isinstance(error, AssertionError):
                break  # the kernel may still be running: nothing after this is worth a thing
    return failed
