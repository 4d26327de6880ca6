"""Dispatch and combine of one lane: rows out to every expert worker, partial sums back, added up."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from afd_runtime.attention.clock import StepClock
from afd_runtime.kernels.combine import add_partial, rows_for
from afd_runtime.models.split import ExpertSplit
from afd_runtime.models.stages import Routed
from afd_runtime.transport.contract import LaneEndpoint
from afd_runtime.transport.round import Dispatch, Round


@dataclass(frozen=True)
class Outstanding:
    """A dispatch whose combine is still to come: for each worker, the rows that went there."""

    round: Round
    rows: list[torch.Tensor]
    like: torch.Tensor
    """[rows, hidden]: shape and dtype of the sum."""


class Exchange:
    """One step's view of the endpoint."""

    def __init__(self, endpoint: LaneEndpoint, split: ExpertSplit, clock: StepClock) -> None:
        self._endpoint = endpoint
        self._split = split
        self._clock = clock

    def dispatch(self, round: Round, routed: Routed) -> Outstanding:
        """Push to every worker the rows that need it, possibly none; raises TransportError."""
        picked: list[torch.Tensor] = []
        seconds = 0.0
        for worker in range(self._split.workers):
            rows, ids = rows_for(routed.ids, self._split.owned(worker))
            hidden = routed.hidden[rows].to(self._endpoint.wire.dtype)
            dispatch = Dispatch(hidden, ids, routed.weights[rows])
            began = time.perf_counter()
            self._endpoint.push(worker, round, dispatch)
            seconds += time.perf_counter() - began
            picked.append(rows)
        self._clock.pushed(seconds, routed.hidden.shape[0])
        return Outstanding(round, picked, routed.hidden)

    def combine(self, out: Outstanding) -> torch.Tensor:
        """The experts' sum [rows, hidden]: partial sums are added in the order of the workers, so the
        result does not depend on who answers first. Raises TransportError."""
        total = torch.zeros_like(out.like)
        for worker, rows in enumerate(out.rows):
            began = time.perf_counter()
            pulled = self._endpoint.pull(worker, out.round)
            self._clock.pulled(time.perf_counter() - began, pulled.transfer_us)
            add_partial(total, rows, pulled.hidden)
        return total
