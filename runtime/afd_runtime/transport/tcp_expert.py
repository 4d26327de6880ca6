"""The expert worker's end of the TCP transport: a listener for the life of the process, and for each
epoch an endpoint that takes one connection from each of its lanes.

    accept -> handshake (a short-lived thread, few at a time) -> endpoint of the current epoch
                 |
                 +-- stranger, leftover, garbage: closed and counted, nothing else happens
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping

import torch

from afd_runtime.transport.connection import Connection
from afd_runtime.transport.epoch import DataEpoch
from afd_runtime.transport.errors import EndpointClosed, PeerLost, TransportError
from afd_runtime.transport.expert_slots import ExpertSlots
from afd_runtime.transport.handshake import Hello, NotYet, Verdict, receive_greeting
from afd_runtime.transport.round import Arrived, Round, WireFormat
from afd_runtime.transport.wire import Header, Kind, bytes_of, receive_into, tune

HANDSHAKE_TIMEOUT_S = 3.0
MAX_HANDSHAKES = 64
"""At a time. More lanes than a domain has GPUs (72) never connect at one instant; others try again."""

PATIENCE = 2 / 3
"""Share of the lanes' time-out after which a round that misses a lane is given up. The worker sees
who is missing; the lanes that wait for its combine do not, so it must speak first."""


class TcpExpert:
    """One epoch's endpoint; see `contract.ExpertEndpoint`. `lost(error)` is told at once when a
    lane's connection breaks."""

    def __init__(
        self,
        wire: WireFormat,
        epoch: DataEpoch,
        worker: int,
        *,
        timeout_s: float = 30.0,
        lost: Callable[[TransportError], None] = lambda error: None,
    ) -> None:
        self.wire = wire
        self.epoch = epoch.number
        self.data_epoch = epoch
        self.worker = worker
        self.timeout_s = timeout_s
        self._tell_lost = lost
        self._slots = ExpertSlots(wire, epoch.number, epoch.lanes, timeout_s * PATIENCE)
        self._changed = threading.Lock()
        self._closed = False
        self._connections: dict[int, Connection] = {}

    def next_round(self, timeout_s: float) -> Arrived | None:
        return self._slots.next(timeout_s)

    def finish(self, round: Round, partial: Mapping[int, torch.Tensor]) -> None:
        # Slots first: a lane may push its next layer as soon as it has the combine.
        self._slots.release(round)
        for lane, rows in partial.items():
            try:
                self._connections[lane].send(
                    Kind.COMBINE, round, rows.shape[0], [rows.to(self.wire.dtype).contiguous()]
                )
            except TransportError as error:
                if self._closed:
                    raise EndpointClosed(f"expert worker {self.worker}: closed in {round}") from error
                raise error.by(lane, f"lane {lane}: combine of {round}") from error

    def wake(self) -> None:
        self._slots.wake()

    def close(self) -> None:
        self._slots.fail(
            EndpointClosed(f"expert worker {self.worker} closed its endpoint of epoch {self.epoch}")
        )
        with self._changed:
            self._closed = True
            connections = list(self._connections.values())
        for connection in connections:
            connection.close()

    def judge(self, hello: Hello) -> tuple[Verdict, int, bytes, str]:
        """May this lane prove itself here?"""
        epoch = self.data_epoch
        if hello.epoch > epoch.number:
            return Verdict.NOT_YET, epoch.number, b"", f"epoch {hello.epoch} is not known yet"
        problems = (
            (hello.epoch, epoch.number, "epoch"),
            (hello.worker, self.worker, "expert worker"),
            (hello.incarnation, epoch.lanes.get(hello.lane), "incarnation"),
            (hello.wire, self.wire, "wire format"),
        )
        for got, expected, what in problems:
            if got != expected:
                return Verdict.REFUSED, epoch.number, b"", f"{what} {got}, expected was {expected}"
        if hello.lane in self._connections:
            return Verdict.REFUSED, epoch.number, b"", f"lane {hello.lane} is connected already"
        return Verdict.PROVE, epoch.number, epoch.key, ""

    def attach(self, sock: socket.socket, lane: int) -> bool:
        """Take over the authenticated connection of `lane`; False when it came too late."""

        def receive(sock: socket.socket, header: Header) -> None:
            landing = self._slots.landing(lane, header.round, header.rows)
            for part in (landing.hidden, landing.ids, landing.weights):
                receive_into(sock, bytes_of(part))
            self._slots.delivered(lane, header.round)

        def lost(error: TransportError) -> None:
            named = error.by(lane, f"lane {lane}")
            self._slots.fail(named)
            self._tell_lost(named)

        with self._changed:
            if self._closed or lane in self._connections:
                return False
            tune(sock, self.timeout_s)
            self._connections[lane] = Connection(
                sock,
                self.wire,
                epoch=self.epoch,
                own_index=self.worker,
                peer_index=lane,
                incoming=Kind.DISPATCH,
                receive=receive,
                lost=lost,
                name=f"dispatch-{lane}",
            )
            self._connections[lane].start()
        return True


class TcpListener:
    """The port where lanes connect. `serve` says which epoch they connect to now."""

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError when the port is taken; port 0 takes a free one."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.create_server((host, port), family=family, backlog=128)
        self.port: int = self._sock.getsockname()[1]
        self.refused: Counter[str] = Counter()
        """Connections that were sent away, by reason: full | silent | stranger."""
        self._endpoint: TcpExpert | None = None
        self._handshakes = threading.BoundedSemaphore(MAX_HANDSHAKES)
        self._accepting = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._accepting.start()

    def serve(self, endpoint: TcpExpert | None) -> None:
        """Lanes that connect from now on belong to `endpoint`; the one before is closed."""
        old, self._endpoint = self._endpoint, endpoint
        if old is not None:
            old.close()

    def close(self) -> None:
        """Idempotent."""
        self.serve(None)
        # Closing alone does not wake a thread in accept().
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._accepting.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            if not self._handshakes.acquire(blocking=False):
                self.refused["full"] += 1
                sock.close()
                continue
            threading.Thread(target=self._greet, args=(sock,), name="handshake", daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        kept = False
        endpoint = self._endpoint
        try:
            sock.settimeout(HANDSHAKE_TIMEOUT_S)
            judge = endpoint.judge if endpoint is not None else _between_epochs
            hello = receive_greeting(sock, judge)
            kept = endpoint is not None and endpoint.attach(sock, hello.lane)
        except NotYet:
            pass
        except PeerLost:
            self.refused["silent"] += 1
        except TransportError:
            self.refused["stranger"] += 1
        finally:
            if not kept:
                sock.close()
            self._handshakes.release()


def _between_epochs(hello: Hello) -> tuple[Verdict, int, bytes, str]:
    return Verdict.NOT_YET, 0, b"", f"epoch {hello.epoch} is not known yet"
