"""Lanes and expert workers as threads of one process: a push is a copy into the worker's slot."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from afd_runtime.transport.errors import EndpointClosed
from afd_runtime.transport.expert_slots import ExpertSlots
from afd_runtime.transport.lane_slots import LaneSlots
from afd_runtime.transport.round import Arrived, Dispatch, Pulled, Round, WireFormat


@dataclass
class InProcessLane:
    """See `contract.LaneEndpoint`."""

    wire: WireFormat
    epoch: int
    lane: int
    slots: LaneSlots
    peers: list[ExpertSlots] = field(default_factory=list)

    @property
    def workers(self) -> int:
        return len(self.peers)

    def push(self, worker: int, round: Round, dispatch: Dispatch) -> None:
        self.slots.open(worker, round, dispatch.rows)
        landing = self.peers[worker].landing(self.lane, round, dispatch.rows)
        landing.hidden.copy_(dispatch.hidden)
        landing.ids.copy_(dispatch.ids)
        landing.weights.copy_(dispatch.weights)
        self.peers[worker].delivered(self.lane, round)

    def pull(self, worker: int, round: Round) -> Pulled:
        return self.slots.take(worker, round)

    def close(self) -> None:
        self.slots.fail(EndpointClosed(f"lane {self.lane} closed its endpoint of epoch {self.epoch}"))


@dataclass
class InProcessExpert:
    """See `contract.ExpertEndpoint`."""

    epoch: int
    worker: int
    slots: ExpertSlots
    peers: dict[int, LaneSlots] = field(default_factory=dict)

    def next_round(self, timeout_s: float) -> Arrived | None:
        return self.slots.next(timeout_s)

    def finish(self, round: Round, partial: Mapping[int, torch.Tensor]) -> None:
        # Slots first: a lane may push its next layer as soon as it has the combine.
        self.slots.release(round)
        for lane, rows in partial.items():
            began = time.perf_counter()
            self.peers[lane].landing(self.worker, round, rows.shape[0]).copy_(rows)
            self.peers[lane].filled(self.worker, round, (time.perf_counter() - began) * 1e6)

    def wake(self) -> None:
        self.slots.wake()

    def close(self) -> None:
        self.slots.fail(
            EndpointClosed(f"expert worker {self.worker} closed its endpoint of epoch {self.epoch}")
        )


def connect(
    wire: WireFormat, epoch: int, lanes: Sequence[int], workers: int, timeout_s: float = 30.0
) -> tuple[dict[int, InProcessLane], list[InProcessExpert]]:
    """The endpoints of one epoch: a lane's by its index, an expert worker's by its place."""
    experts = [
        InProcessExpert(epoch, worker, ExpertSlots(wire, epoch, lanes, timeout_s))
        for worker in range(workers)
    ]
    by_lane = {lane: InProcessLane(wire, epoch, lane, LaneSlots(wire, workers, timeout_s)) for lane in lanes}
    for lane, endpoint in by_lane.items():
        endpoint.peers = [expert.slots for expert in experts]
        for expert in experts:
            expert.peers[lane] = endpoint.slots
    return by_lane, experts
