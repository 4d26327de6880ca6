"""The contract of interface.py in torch, on the CPU: what a GPU kernel is held against, and what runs without one.

It has no thread. Whoever waits does the work: expert by expert, decode before prefill at every boundary, until the
run waited for is done. So a test can see that a decode run published after a prefill run ends before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch

from afd_runtime.kernels.apk.interface import LayerWeights, Run, SlotBuffers, SlotLedger
from afd_runtime.kernels.apk.numerics import FP8, expert_ffn
from afd_runtime.kernels.apk.shape import BLOCK_K, ExpertShape, Extent, Queue, ShapeError, check_extents


class TorchExpertKernel:
    """`layers` weights, `slots` slots a queue, `capacity_rows` rows a slot of each queue."""

    def __init__(
        self,
        shape: ExpertShape,
        layers: Sequence[LayerWeights],
        *,
        slots: dict[Queue, int],
        capacity_rows: dict[Queue, int],
    ) -> None:
        for weights in layers:
            weights.check(shape)
        self._shape, self._layers, self._capacity = shape, layers, capacity_rows
        self._ledger = SlotLedger(slots)
        self._buffers = {
            queue: [_buffers(shape, capacity_rows[queue]) for _ in range(slots[queue])] for queue in Queue
        }
        self._work: dict[Queue, deque[tuple[Run, Iterator[None]]]] = {queue: deque() for queue in Queue}
        self.finished: list[Run] = []
        """Runs in the order in which they ended."""

    @property
    def shape(self) -> ExpertShape:
        return self._shape

    def buffers(self, run: Run) -> SlotBuffers:
        return self._buffers[run.queue][run.slot]

    def open(self, queue: Queue) -> Run:
        return self._ledger.open(queue)

    def publish(self, run: Run, *, layer: int, extents: Sequence[Extent]) -> None:
        if not 0 <= layer < len(self._layers):
            raise ShapeError(f"layer {layer}: the kernel has {len(self._layers)}")
        check_extents(extents, self._shape, self._capacity[run.queue])
        self._ledger.publish(run)
        self._work[run.queue].append((run, self._tiles(run, self._layers[layer], tuple(extents))))

    def wait(self, run: Run, timeout_s: float) -> None:
        self._ledger.check_published(run)
        while any(run == waiting for waiting, _ in self._work[run.queue]):
            self._one_boundary()
        self._ledger.waited(run)

    def set_budget(self, multiprocessors: int) -> None:
        """One claimant has nothing to split; checks the number as the others do."""
        if multiprocessors < 1:
            raise ValueError(f"budget {multiprocessors}: decode needs at least one multiprocessor")

    def stop(self) -> None:
        self._ledger.stop()
        while any(self._work.values()):
            self._one_boundary()

    def _one_boundary(self) -> None:
        queue = Queue.DECODE if self._work[Queue.DECODE] else Queue.PREFILL
        run, tiles = self._work[queue][0]
        if next(tiles, "over") == "over":
            self._work[queue].popleft()
            self.finished.append(run)

    def _tiles(self, run: Run, weights: LayerWeights, extents: tuple[Extent, ...]) -> Iterator[None]:
        buffers = self.buffers(run)
        for expert, extent in enumerate(extents):
            if extent.rows:
                rows = slice(extent.first, extent.first + extent.rows)
                buffers.y[rows] = expert_ffn(buffers.x[rows], buffers.x_scale[:, rows], weights, expert)
                yield


def _buffers(shape: ExpertShape, rows: int) -> SlotBuffers:
    return SlotBuffers(
        x=torch.zeros(rows, shape.hidden, dtype=FP8),
        x_scale=torch.zeros(shape.hidden // BLOCK_K, rows),
        y=torch.zeros(rows, shape.hidden, dtype=torch.bfloat16),
    )
