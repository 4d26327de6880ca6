"""The lane's end of the TCP transport: one connection to each expert worker of an epoch."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from afd_runtime.transport.connection import Connection
from afd_runtime.transport.epoch import DataEpoch, split_address
from afd_runtime.transport.errors import EndpointClosed, Mismatch, PeerLost, TransportError
from afd_runtime.transport.handshake import Hello, NotYet, greet
from afd_runtime.transport.lane_slots import LaneSlots
from afd_runtime.transport.round import Dispatch, Pulled, Round, WireFormat
from afd_runtime.transport.wire import Header, Kind, bytes_of, receive_into, tune

ASK_AGAIN_S = 0.02
"""An expert worker learns of an epoch moments before or after the lane does."""


class TcpLane:
    """See `contract.LaneEndpoint`. `lost(error)` is told at once when a worker's connection
    breaks, between steps as well."""

    def __init__(
        self,
        wire: WireFormat,
        epoch: DataEpoch,
        lane: int,
        *,
        timeout_s: float = 30.0,
        lost: Callable[[TransportError], None] = lambda error: None,
    ) -> None:
        self.wire = wire
        self.epoch = epoch.number
        self.workers = len(epoch.workers)
        self._data_epoch = epoch
        self._lane = lane
        self._timeout_s = timeout_s
        self._tell_lost = lost
        self._slots = LaneSlots(wire, self.workers, timeout_s)
        self._connections: list[Connection] = []
        self._closing = threading.Event()

    def connect(self, timeout_s: float) -> None:
        """Reach every expert worker; raises PeerLost or Mismatch naming the one that could not be,
        EndpointClosed when `close` was called meanwhile."""
        deadline = time.monotonic() + timeout_s
        for worker, address in enumerate(self._data_epoch.workers):
            try:
                sock = self._reach(worker, address, deadline)
            except TransportError as error:
                self.close()
                raise error.by(worker, f"expert worker {worker} at {address}") from error
            self._connections.append(self._connection(worker, sock))
            self._connections[-1].start()

    def push(self, worker: int, round: Round, dispatch: Dispatch) -> None:
        self._slots.open(worker, round, dispatch.rows)
        payload = (dispatch.hidden, dispatch.ids, dispatch.weights)
        try:
            self._connections[worker].send(Kind.DISPATCH, round, dispatch.rows, payload)
        except TransportError as error:
            if self._closing.is_set():
                raise EndpointClosed(f"lane {self._lane}: closed in {round}") from error
            raise error.by(worker, f"expert worker {worker}: dispatch of {round}") from error

    def pull(self, worker: int, round: Round) -> Pulled:
        return self._slots.take(worker, round)

    def close(self) -> None:
        self._closing.set()
        self._slots.fail(EndpointClosed(f"lane {self._lane} closed its endpoint of epoch {self.epoch}"))
        for connection in self._connections:
            connection.close()

    def _reach(self, worker: int, address: str, deadline: float) -> socket.socket:
        """A connected and authenticated socket, tried until `deadline`."""
        hello = Hello(self.epoch, self._lane, self._data_epoch.lanes[self._lane], worker, self.wire)
        while True:
            left = deadline - time.monotonic()
            try:
                return self._try(hello, address, max(left, 0.1))
            except (OSError, PeerLost, NotYet) as error:
                if left <= 0:
                    raise PeerLost(f"not reached: {error}") from error
            if self._closing.wait(ASK_AGAIN_S):
                raise EndpointClosed("closed while connecting")

    def _try(self, hello: Hello, address: str, timeout_s: float) -> socket.socket:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise Mismatch(str(error)) from error
        sock = socket.create_connection((host, port), timeout_s)
        try:
            greet(sock, hello, self._data_epoch.key)
        except BaseException:
            sock.close()
            raise
        tune(sock, self._timeout_s)
        return sock

    def _connection(self, worker: int, sock: socket.socket) -> Connection:
        def receive(sock: socket.socket, header: Header) -> None:
            began = time.perf_counter()
            buffer = self._slots.landing(worker, header.round, header.rows)
            receive_into(sock, bytes_of(buffer))
            self._slots.filled(worker, header.round, (time.perf_counter() - began) * 1e6)

        def lost(error: TransportError) -> None:
            named = error.by(worker, f"expert worker {worker}")
            self._slots.fail(named)
            self._tell_lost(named)

        return Connection(
            sock,
            self.wire,
            epoch=self.epoch,
            own_index=self._lane,
            peer_index=worker,
            incoming=Kind.COMBINE,
            receive=receive,
            lost=lost,
            name=f"combine-{worker}",
        )
