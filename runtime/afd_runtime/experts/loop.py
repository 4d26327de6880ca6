"""The expert worker's loop body: one round at a time, the rows of all lanes as one batch.

Batching over lanes is what disaggregation gains: each weight is read once for M lanes' rows.
"""

from __future__ import annotations

import time

import torch

from afd_runtime.experts.ledger import StepLedger
from afd_runtime.models.stages import ExpertStage
from afd_runtime.protocol.messages import StepTimes
from afd_runtime.protocol.plan import ExpertStep
from afd_runtime.transport.contract import ExpertEndpoint
from afd_runtime.transport.errors import Mismatch
from afd_runtime.transport.round import Arrived


class ExpertLoop:
    """Serves the rounds of one epoch's endpoint. Not thread-safe: one thread runs it."""

    def __init__(self, stage: ExpertStage, endpoint: ExpertEndpoint) -> None:
        self._stage = stage
        self._endpoint = endpoint
        self._ledger = StepLedger(len(stage.shape.moe_layers))

    def announce(self, step: ExpertStep) -> None:
        self._ledger.announce(step)

    def complete(self) -> list[tuple[ExpertStep, StepTimes]]:
        """Steps that are done since the last call, with what they took."""
        return self._ledger.complete()

    def serve(self, timeout_s: float) -> bool:
        """Serve the most urgent complete round; False when none came within `timeout_s` or somebody
        woke the endpoint. Raises TransportError."""
        asked_s = time.perf_counter()
        arrived = self._endpoint.next_round(timeout_s)
        began_s = time.perf_counter()
        if arrived is None:
            return False
        partial = self._compute(arrived)
        ended_s = time.perf_counter()
        self._endpoint.finish(arrived.round, partial)
        self._ledger.served(
            arrived.round.step,
            rows=sum(dispatch.rows for dispatch in arrived.by_lane.values()),
            waited_s=began_s - asked_s,
            began_s=began_s,
            ended_s=ended_s,
        )
        return True

    @torch.inference_mode()
    def _compute(self, arrived: Arrived) -> dict[int, torch.Tensor]:
        """Every lane's partial sums [rows of the lane, hidden]."""
        self._check(arrived)
        lanes = list(arrived.by_lane)
        dispatches = [arrived.by_lane[lane] for lane in lanes]
        partial = self._stage.forward(
            arrived.round.layer,
            torch.cat([dispatch.hidden for dispatch in dispatches]).to(self._stage.dtype),
            torch.cat([dispatch.ids for dispatch in dispatches]),
            torch.cat([dispatch.weights for dispatch in dispatches]),
        )
        parts = torch.split(partial, [dispatch.rows for dispatch in dispatches])
        return dict(zip(lanes, parts, strict=True))

    def _check(self, arrived: Arrived) -> None:
        """Raises Mismatch for a layer or an expert that does not live here."""
        round, owned = arrived.round, self._stage.owned
        if round.layer not in self._stage.layers:
            raise Mismatch(f"{round}: layer {round.layer} has no experts, {list(self._stage.layers)} have")
        for lane, dispatch in arrived.by_lane.items():
            foreign = dispatch.ids[
                (dispatch.ids >= 0) & ((dispatch.ids < owned.start) | (dispatch.ids >= owned.stop))
            ]
            if foreign.numel():
                raise Mismatch(
                    f"lane {lane}: {round} asks for expert {int(foreign[0])}, "
                    f"this worker owns {owned.start}..{owned.stop - 1}",
                    lane,
                )
