"""What the runtime's expert side sees of a resident expert kernel, whatever runs it.

Each queue (decode, prefill) is a ring of slots. A slot's life, with `run` counting up for ever:

      open ──► filled by peers ──► published ──► (kernel: tiles) ──► done ──► open again as run + slots
       │                             │                                │
    run = kernel.open(q)     kernel.publish(run, ...)         kernel.wait(run)

Rules of the contract, the same for every implementation (tests/unit/apk/contract.py):
  - Runs of a queue are published in the order of their numbers; decode goes before prefill at every boundary.
  - `x` and `x_scale` may be written from `open` until `publish`, `y` may be read from `wait` until the next `open`
    of the slot. Rows outside the extents are neither read as results nor kept.
  - A slot opens again only after its run was waited for: `SlotBusy` otherwise, never an overwrite.
  - Nothing here knows sockets or Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from afd_runtime.kernels.apk.shape import ExpertShape, Extent, Queue


class SlotBusy(RuntimeError):
    """The slot still holds a run that nobody has waited for."""


class OutOfOrder(RuntimeError):
    """A run was published twice, before an earlier one of its queue, or without being opened."""


class RunTimeout(TimeoutError):
    """A run was not done in time; the message names queue, run, slot and what the kernel was waiting for."""


class KernelStopped(RuntimeError):
    """The kernel has been stopped; nothing can be published any more."""


@dataclass(frozen=True)
class LayerWeights:
    """One layer's experts in FP8 (e4m3) with a FP32 scale for each 128 x 128 block."""

    gate_up: torch.Tensor
    """[experts, 2 * intermediate, hidden], gate rows first"""
    gate_up_scale: torch.Tensor
    """[experts, 2 * intermediate / 128, hidden / 128]"""
    down: torch.Tensor
    """[experts, hidden, intermediate]"""
    down_scale: torch.Tensor
    """[experts, hidden / 128, intermediate / 128]"""

    def check(self, shape: ExpertShape) -> None:
        e, h, i = shape.experts, shape.hidden, shape.intermediate
        wanted = {
            "gate_up": (e, 2 * i, h),
            "gate_up_scale": (e, 2 * i // 128, h // 128),
            "down": (e, h, i),
            "down_scale": (e, h // 128, i // 128),
        }
        for name, size in wanted.items():
            have = tuple(getattr(self, name).shape)
            if have != size:
                raise ValueError(f"{name} is {list(have)}, {shape} needs {list(size)}")


@dataclass(frozen=True)
class SlotBuffers:
    """The memory of one slot. Peers write `x` and `x_scale` and read `y` in place."""

    x: torch.Tensor
    """[capacity_rows, hidden] FP8 e4m3"""
    x_scale: torch.Tensor
    """[hidden / 128, stride >= capacity_rows] FP32: column r belongs to row r"""
    y: torch.Tensor
    """[capacity_rows, hidden] BF16"""


@dataclass(frozen=True)
class Run:
    """One round in one slot: `number` counts the runs of `queue` from 1."""

    queue: Queue
    number: int
    slot: int


class ExpertKernel(Protocol):
    """A resident kernel over the experts of one GPU."""

    @property
    def shape(self) -> ExpertShape: ...

    def buffers(self, run: Run) -> SlotBuffers: ...

    def open(self, queue: Queue) -> Run:
        """The queue's next run. Raises SlotBusy, KernelStopped."""
        ...

    def publish(self, run: Run, *, layer: int, extents: Sequence[Extent]) -> None:
        """Sets the ready flag. Raises ShapeError for extents that do not fit, OutOfOrder, KernelStopped."""
        ...

    def wait(self, run: Run, timeout_s: float) -> None:
        """Returns once `y` is complete. Raises RunTimeout, OutOfOrder for a run never published."""
        ...

    def set_budget(self, multiprocessors: int) -> None:
        """How many multiprocessors may take decode units while prefill has work, from their next boundary on."""
        ...

    def stop(self) -> None:
        """Finishes what is published, then ends. Idempotent."""
        ...


class SlotLedger:
    """Which run each slot is in: the host's half of the contract, shared by all implementations."""

    def __init__(self, slots: dict[Queue, int]) -> None:
        self._slots = slots
        self._opened = dict.fromkeys(Queue, 0)
        self._published = dict.fromkeys(Queue, 0)
        self._waited: dict[Queue, set[int]] = {queue: set() for queue in Queue}
        self._stopped = False

    def open(self, queue: Queue) -> Run:
        self._refuse_if_stopped()
        number = self._opened[queue] + 1
        slot = (number - 1) % self._slots[queue]
        before = number - self._slots[queue]
        if before > 0 and before not in self._waited[queue]:
            raise SlotBusy(
                f"{queue.name.lower()} slot {slot} holds run {before}: wait for it before opening {number}"
            )
        self._waited[queue].discard(before)
        self._opened[queue] = number
        return Run(queue, number, slot)

    def publish(self, run: Run) -> None:
        self._refuse_if_stopped()
        following = self._published[run.queue] + 1
        if run.number != following or run.number > self._opened[run.queue]:
            raise OutOfOrder(
                f"{run.queue.name.lower()} run {run.number} published, {following} was to follow"
            )
        self._published[run.queue] = run.number

    def check_published(self, run: Run) -> None:
        if run.number > self._published[run.queue]:
            raise OutOfOrder(f"{run.queue.name.lower()} run {run.number} was never published")

    def waited(self, run: Run) -> None:
        if run.number > self._opened[run.queue] - self._slots[run.queue]:
            self._waited[run.queue].add(run.number)

    def stop(self) -> None:
        self._stopped = True

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise KernelStopped("the expert kernel has been stopped")
