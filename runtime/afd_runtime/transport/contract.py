"""What every transport promises.

1. Payload before flag: whoever sees a round as ready or done sees all of its rows.
2. A lane pushes exactly one dispatch a round to every expert worker, with zero rows if none is
   routed there; a worker starts a round when every lane of the epoch has delivered.
3. One slot a (lane, worker, microbatch): pushing again before its combine was pulled raises SlotInUse.
4. A header of another epoch or round, of other widths, or with more rows than the buffers hold raises
   Mismatch, which names both values.
5. Nobody waits for ever: RoundTimeout names peer, round and what was awaited. Closing an endpoint is
   idempotent, may come from any thread, and ends every wait with EndpointClosed.
6. Results are added up by lane and worker, never by order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from afd_runtime.transport.round import Arrived, Dispatch, Pulled, Round, WireFormat


class LaneEndpoint(Protocol):
    """A lane's side: connected to all expert workers of one epoch."""

    wire: WireFormat
    epoch: int
    workers: int

    def push(self, worker: int, round: Round, dispatch: Dispatch) -> None:
        """Deliver `dispatch` into the worker's slot; raises TransportError."""

    def pull(self, worker: int, round: Round) -> Pulled:
        """Wait for the partial sums of the rows that were pushed; raises TransportError."""

    def close(self) -> None: ...


class ExpertEndpoint(Protocol):
    """An expert worker's side: connected to all lanes of one epoch."""

    epoch: int

    def next_round(self, timeout_s: float) -> Arrived | None:
        """The most urgent round that is complete, or None after `timeout_s` or a `wake`; raises
        TransportError when a lane is lost."""

    def finish(self, round: Round, partial: Mapping[int, torch.Tensor]) -> None:
        """Send each lane its rows' partial sums [rows, hidden] and free the slots; raises TransportError."""

    def wake(self) -> None:
        """Make a waiting `next_round` return None; from any thread."""

    def close(self) -> None: ...
