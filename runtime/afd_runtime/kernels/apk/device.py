"""The contract of interface.py on an H100 or H200: buffers, tensor maps, and the resident launch.

    host ── stream memory operations ──► ready words ──► resident kernel ──► done words ──► peers, host

The kernel is launched once, on a stream of its own, and ends at `stop`. Everything else (payload copies, publishing,
waiting) goes on other streams, so it never waits behind the kernel. Publishing is a stream write, waiting a stream
wait: both are ordered with the caller's copies and may be captured into a graph for one run.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver as cu

from afd_runtime.kernels.apk.build import check_target, cubin
from afd_runtime.kernels.apk.interface import (
    LayerWeights,
    Run,
    RunTimeout,
    SlotBuffers,
    SlotLedger,
)
from afd_runtime.kernels.apk.layout import (
    FAULTS,
    LAYER_BYTES,
    SLOT_BYTES,
    Control,
    Params,
    QueueView,
    address,
)
from afd_runtime.kernels.apk.shape import (
    BLOCK_K,
    MAX_EXPERTS,
    NARROW_TOKENS,
    ROW_ALIGN,
    WIDE_TOKENS,
    ExpertShape,
    Extent,
    Queue,
    ShapeError,
    ceil_div,
    check_extents,
)
from afd_runtime.kernels.apk.tiles import Tiles, tiles_for

THREADS = 384
SHARED_BYTES = 232448
"""sizeof(Shared) in csrc/shared.cuh: all that a CTA can have."""
PARKED_FLOATS = 128 * 256
"""Accumulators of one CTA: 128 for each of 256 math threads (csrc/wide.cuh)."""


class CudaError(RuntimeError):
    """A driver call failed; the message names the call and the driver's error."""


def call(function: Any, *arguments: Any) -> Any:
    """Calls a driver function, raises CudaError unless it succeeds, returns what is left of its results."""
    status, *results = function(*arguments)
    if status != cu.CUresult.CUDA_SUCCESS:
        raise CudaError(f"{function.__name__}: {status.name}")
    return results[0] if len(results) == 1 else tuple(results)


@dataclass
class _Ring:
    """Device memory of one queue."""

    ready: torch.Tensor
    done: torch.Tensor
    layer: torch.Tensor
    extent: torch.Tensor
    arrived: torch.Tensor
    finished: torch.Tensor
    table: torch.Tensor
    slots: list[SlotBuffers]
    activations: list[tuple[torch.Tensor, torch.Tensor]]
    capacity_rows: int
    staged: torch.Tensor
    """[2 * slots, 1 + MAX_EXPERTS], pinned: layer and extents on their way. A run's row is written again only two
    rounds of the ring later, when the run before it in its slot has been waited for."""

    def view(self) -> QueueView:
        tensors = (self.ready, self.done, self.layer, self.extent, self.arrived, self.finished, self.table)
        return QueueView(*(t.data_ptr() for t in tensors), len(self.slots), self.slots[0].x_scale.shape[1])


class GpuExpertKernel:
    """`multiprocessors` of the GPU run the kernel; the rest is for communication: nothing else fits beside it."""

    def __init__(
        self,
        shape: ExpertShape,
        layers: Sequence[LayerWeights],
        *,
        slots: dict[Queue, int],
        capacity_rows: dict[Queue, int],
        multiprocessors: int,
        tiles: Tiles | None = None,
        fault_timeout_s: float = 5.0,
        log_runs: int = 0,
        log_units: int = 0,
        cache: Path | None = None,
    ) -> None:
        device = torch.cuda.current_device()
        properties = torch.cuda.get_device_properties(device)
        check_target((properties.major, properties.minor))
        if not 1 <= multiprocessors <= properties.multi_processor_count:
            raise ShapeError(
                f"{multiprocessors} multiprocessors asked for, the GPU has {properties.multi_processor_count}"
            )
        for weights in layers:
            weights.check(shape)
        self._shape, self._multiprocessors = shape, multiprocessors
        self._tiles = tiles or tiles_for(shape)
        self._ledger = SlotLedger(slots)
        self._layer_count = len(layers)
        self._weights_kept: list[object] = []
        self._layers = self._layer_table(layers)
        self._rings = {queue: self._ring(slots[queue], capacity_rows[queue]) for queue in Queue}
        self._control = _to_device(Control(budget=multiprocessors, timeout_ns=int(fault_timeout_s * 1e9)))
        self._parked = torch.empty(multiprocessors * PARKED_FLOATS, dtype=torch.float32, device="cuda")
        self.claimed_ns = torch.zeros(2, 64, dtype=torch.int64, device="cuda")
        self._log_units = log_units
        self.log = torch.zeros(2, log_runs, self._log_units, dtype=torch.int32, device="cuda")
        """[queue, (run - 1) % log_runs, unit]: how often each unit was stored."""
        self._kernel = load(cubin("apk", cache).path, "afd_apk")
        call(
            cu.cuFuncSetAttribute,
            self._kernel,
            cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            SHARED_BYTES,
        )
        self.stream = torch.cuda.Stream()
        self._side = torch.cuda.Stream()
        torch.cuda.synchronize()

    @property
    def shape(self) -> ExpertShape:
        return self._shape

    def params(self) -> Params:
        logged = self.log.data_ptr() if self.log.numel() else 0
        return Params(
            queue=(QueueView * 2)(*(self._rings[queue].view() for queue in Queue)),
            layers=self._layers.data_ptr(),
            control=self._control.data_ptr(),
            parked=self._parked.data_ptr(),
            log=logged,
            claimed_ns=self.claimed_ns.data_ptr(),
            experts=self._shape.experts,
            hidden=self._shape.hidden,
            intermediate=self._shape.intermediate,
            chunk=self._tiles.chunk_blocks,
            group=self._tiles.group_tiles,
            log_runs=self.log.shape[1],
            log_units=self._log_units,
        )

    def launch(self) -> None:
        """Starts the resident kernel; returns at once."""
        launch(self._kernel, self.params(), self._multiprocessors, THREADS, SHARED_BYTES, self.stream)

    @property
    def layer_count(self) -> int:
        return self._layer_count

    def reset(self, published: dict[Queue, int], *, stop: bool) -> None:
        """For measurements, between launches: the words of a kernel that has run nothing, with the first
        `published` runs of each queue already published, and `stop` set or not."""
        for queue, ring in self._rings.items():
            for words in (ring.ready, ring.done, ring.arrived, ring.finished):
                words.zero_()
            count = published.get(queue, 0)
            ring.ready[:count] = torch.arange(1, count + 1, device="cuda") << 32
        self._write_control("stop", int(stop))

    def slots(self, queue: Queue) -> list[SlotBuffers]:
        return self._rings[queue].slots

    def buffers(self, run: Run) -> SlotBuffers:
        return self._rings[run.queue].slots[run.slot]

    def open(self, queue: Queue) -> Run:
        return self._ledger.open(queue)

    def publish(self, run: Run, *, layer: int, extents: Sequence[Extent]) -> None:
        """Ordered on the current stream after the copies that filled the slot."""
        if not 0 <= layer < self._layer_count:
            raise ShapeError(f"layer {layer}: the kernel has {self._layer_count}")
        ring = self._rings[run.queue]
        check_extents(extents, self._shape, ring.capacity_rows)
        self._ledger.publish(run)
        self.write_slot(run, layer, extents)
        stream = torch.cuda.current_stream().cuda_stream
        call(cu.cuStreamWriteValue64, stream, ring.ready.data_ptr() + 8 * run.slot, run.number << 32, 0)

    def write_slot(self, run: Run, layer: int, extents: Sequence[Extent]) -> None:
        """Layer and extents of a run, without its ready flag."""
        ring = self._rings[run.queue]
        words = torch.tensor([layer, *(extent.word for extent in extents)], dtype=torch.int64)
        staged = ring.staged[run.number % len(ring.staged)]
        staged[: len(words)].copy_(words.to(torch.int32))
        ring.layer[run.slot : run.slot + 1].copy_(staged[:1], non_blocking=True)
        ring.extent[run.slot, : len(extents)].copy_(staged[1 : len(words)], non_blocking=True)

    def wait(self, run: Run, timeout_s: float) -> None:
        self._ledger.check_published(run)
        deadline = time.monotonic() + timeout_s
        done = self._rings[run.queue].done[run.slot : run.slot + 1]
        while (seen := self._read(done)) < run.number:
            fault = self.fault()
            if fault or time.monotonic() > deadline:
                raise RunTimeout(self._describe(run, seen, timeout_s, fault))
        self._ledger.waited(run)

    def set_budget(self, multiprocessors: int) -> None:
        if multiprocessors < 1:
            raise ValueError(f"budget {multiprocessors}: decode needs at least one multiprocessor")
        self._write_control("budget", multiprocessors)

    def stop(self) -> None:
        self._ledger.stop()
        self._write_control("stop", 1)
        self.stream.synchronize()

    def fault(self) -> str:
        """What the kernel gave up waiting for, or nothing."""
        with torch.cuda.stream(self._side):
            control = Control.from_buffer_copy(bytes(self._control.cpu().numpy().tobytes()))
        if not control.fault:
            return ""
        return (
            f"CTA {control.fault_block} gave up waiting for {FAULTS[control.fault]} of expert {control.fault_expert}, "
            f"{Queue(control.fault_queue).name.lower()} slot {control.fault_slot}: "
            f"{control.fault_seen} of {control.fault_wanted} arrivals"
        )

    def _describe(self, run: Run, seen: int, timeout_s: float, fault: str) -> str:
        ring, name = self._rings[run.queue], run.queue.name.lower()
        ready = self._read(ring.ready[run.slot : run.slot + 1])
        halves = self._read(ring.finished[run.slot : run.slot + 1])
        return (
            f"{name} run {run.number} (slot {run.slot}) not done after {timeout_s:g} s: "
            f"done word {seen}, ready word run "
            f"{ready >> 32} ticket {ready & 0xFFFFFFFF:#x}, {halves} unit halves stored"
            + (f"; {fault}" if fault else "")
        )

    def _read(self, word: torch.Tensor) -> int:
        with torch.cuda.stream(self._side):
            return int(word.item())

    def _write_control(self, field: str, value: int) -> None:
        offset = getattr(Control, field).offset
        call(cu.cuStreamWriteValue32, self._side.cuda_stream, self._control.data_ptr() + offset, value, 0)
        self._side.synchronize()

    def _layer_table(self, layers: Sequence[LayerWeights]) -> torch.Tensor:
        rows = []
        for weights in layers:
            scales = [_padded(weights.gate_up_scale), _padded(weights.down_scale)]
            self._weights_kept += [weights, *scales]
            rows.append(
                tensor_map(weights.gate_up.flatten(0, 1), 128, BLOCK_K)
                + tensor_map(weights.down.flatten(0, 1), 128, BLOCK_K)
                + b"".join(scale.data_ptr().to_bytes(8, "little") for scale in scales)
            )
        return _table(rows, LAYER_BYTES)

    def _ring(self, slots: int, capacity_rows: int) -> _Ring:
        stride = ceil_div(capacity_rows, WIDE_TOKENS) * WIDE_TOKENS + WIDE_TOKENS
        h, i = self._shape.hidden, self._shape.intermediate
        buffers, activations, rows = [], [], []
        for _ in range(slots):
            slot = SlotBuffers(
                x=torch.zeros(capacity_rows, h, dtype=torch.float8_e4m3fn, device="cuda"),
                x_scale=torch.zeros(h // BLOCK_K, stride, device="cuda"),
                y=torch.zeros(capacity_rows, h, dtype=torch.bfloat16, device="cuda"),
            )
            act = torch.zeros(capacity_rows, i, dtype=torch.float8_e4m3fn, device="cuda")
            act_scale = torch.zeros(i // BLOCK_K, stride, device="cuda")
            rows.append(
                tensor_map(slot.x, WIDE_TOKENS, BLOCK_K)
                + tensor_map(slot.x, NARROW_TOKENS, BLOCK_K)
                + tensor_map(act, WIDE_TOKENS, BLOCK_K)
                + tensor_map(act, NARROW_TOKENS, BLOCK_K)
                + tensor_map(act, ROW_ALIGN, 64)
                + tensor_map(slot.y, ROW_ALIGN, 64)
                + slot.x_scale.data_ptr().to_bytes(8, "little")
                + act_scale.data_ptr().to_bytes(8, "little")
            )
            buffers.append(slot)
            activations.append((act, act_scale))
        return _Ring(
            ready=torch.zeros(slots, dtype=torch.int64, device="cuda"),
            done=torch.zeros(slots, dtype=torch.int64, device="cuda"),
            layer=torch.zeros(slots, dtype=torch.int32, device="cuda"),
            extent=torch.zeros(slots, MAX_EXPERTS, dtype=torch.int32, device="cuda"),
            arrived=torch.zeros(slots, MAX_EXPERTS, dtype=torch.int32, device="cuda"),
            finished=torch.zeros(slots, dtype=torch.int32, device="cuda"),
            table=_table(rows, SLOT_BYTES),
            slots=buffers,
            activations=activations,
            capacity_rows=capacity_rows,
            staged=torch.zeros(2 * slots, 1 + MAX_EXPERTS, dtype=torch.int32).pin_memory(),
        )


def load(path: Path, name: str) -> Any:
    """A kernel of a cubin, in torch's context."""
    torch.cuda.init()
    torch.cuda.current_stream()
    module = call(cu.cuModuleLoadData, path.read_bytes())
    return call(cu.cuModuleGetFunction, module, name.encode())


def launch(
    kernel: Any, params: ctypes.Structure, blocks: int, threads: int, shared: int, stream: torch.cuda.Stream
) -> None:
    pointers = (ctypes.c_void_p * 1)(address(params))
    call(
        cu.cuLaunchKernel,
        *(kernel, blocks, 1, 1, threads, 1, 1, shared, stream.cuda_stream, ctypes.addressof(pointers), 0),
    )


def tensor_map(tensor: torch.Tensor, box_rows: int, box_columns: int) -> bytes:
    """TMA descriptor of a row-major [rows, columns] FP8 or BF16 tensor, rows of a box swizzled over their width."""
    rows, columns = tensor.shape
    size = tensor.element_size()
    kind = cu.CUtensorMapDataType
    swizzle = cu.CUtensorMapSwizzle
    encoded = call(
        cu.cuTensorMapEncodeTiled,
        kind.CU_TENSOR_MAP_DATA_TYPE_UINT8 if size == 1 else kind.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        tensor.data_ptr(),
        [cu.cuuint64_t(columns), cu.cuuint64_t(rows)],
        [cu.cuuint64_t(columns * size)],
        [cu.cuuint32_t(box_columns), cu.cuuint32_t(box_rows)],
        [cu.cuuint32_t(1), cu.cuuint32_t(1)],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle.CU_TENSOR_MAP_SWIZZLE_64B if box_columns * size == 64 else swizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return b"".join(int(word).to_bytes(8, "little") for word in encoded.opaque)


def _padded(scale: torch.Tensor) -> torch.Tensor:
    """Scales with K-blocks padded to a multiple of 4, as the kernel strides over them."""
    return torch.nn.functional.pad(scale, (0, -scale.shape[-1] % 4)).contiguous()


def _table(rows: list[bytes], size: int) -> torch.Tensor:
    packed = b"".join(row.ljust(size, b"\0") for row in rows)
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8).cuda()


def _to_device(struct: ctypes.Structure) -> torch.Tensor:
    return torch.frombuffer(bytearray(bytes(struct)), dtype=torch.uint8).cuda()
