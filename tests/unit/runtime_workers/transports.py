"""The TCP transport on loopback, with the calling convention of `transport.inprocess.connect`."""

from __future__ import annotations

from collections.abc import Sequence

from afd_runtime.transport.epoch import DataEpoch
from afd_runtime.transport.round import WireFormat
from afd_runtime.transport.tcp_expert import TcpExpert, TcpListener
from afd_runtime.transport.tcp_lane import TcpLane

KEY = b"an epoch's data key, 32 bytes at"


class TcpTransport:
    """Listeners live as long as this, as they do in a process; endpoints for one epoch."""

    def __init__(self) -> None:
        self.listeners: list[TcpListener] = []
        self._endpoints: list[TcpLane | TcpExpert] = []

    def epoch(self, number: int, lanes: Sequence[int], workers: int) -> DataEpoch:
        while len(self.listeners) < workers:
            self.listeners.append(TcpListener("127.0.0.1", 0))
        return DataEpoch(
            number=number,
            key=KEY,
            lanes={lane: 1000 + lane for lane in lanes},
            workers=[f"127.0.0.1:{listener.port}" for listener in self.listeners[:workers]],
        )

    def connect(
        self, wire: WireFormat, epoch: int, lanes: Sequence[int], workers: int, timeout_s: float = 30.0
    ) -> tuple[dict[int, TcpLane], list[TcpExpert]]:
        known = self.epoch(epoch, lanes, workers)
        experts = [TcpExpert(wire, known, worker, timeout_s=timeout_s) for worker in range(workers)]
        for listener, expert in zip(self.listeners, experts, strict=False):
            listener.serve(expert)
        by_lane = {lane: TcpLane(wire, known, lane, timeout_s=timeout_s) for lane in lanes}
        self._endpoints += [*experts, *by_lane.values()]
        for endpoint in by_lane.values():
            endpoint.connect(10.0)
        return by_lane, experts

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()
        for listener in self.listeners:
            listener.close()
