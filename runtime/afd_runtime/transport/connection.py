"""One authenticated TCP connection between a lane and an expert worker, with the thread that reads it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence

import torch

from afd_runtime.protocol.plan import Phase
from afd_runtime.transport.errors import TransportError
from afd_runtime.transport.round import Round, WireFormat
from afd_runtime.transport.wire import Header, Kind, pack, receive_header, send, unpack

GOODBYE_WAIT_S = 0.2


class Connection:
    """Frames of one `kind` come in, frames of the other go out.

    `receive(header)` is called on the reader's thread for each frame and must read its payload.
    `lost(error)` is called once if the stream ends without a goodbye or says something wrong; after
    a goodbye of either side it is not."""

    def __init__(
        self,
        sock: socket.socket,
        wire: WireFormat,
        *,
        epoch: int,
        own_index: int,
        peer_index: int,
        incoming: Kind,
        receive: Callable[[socket.socket, Header], None],
        lost: Callable[[TransportError], None],
        name: str,
    ) -> None:
        self._sock = sock
        self._wire = wire
        self._epoch = epoch
        self._own_index = own_index
        self._peer_index = peer_index
        self._incoming = incoming
        self._receive = receive
        self._lost = lost
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read. Call it once the connection is where an answer to its first frame will look
        for it: that answer may be due before this returns."""
        self._reader.start()

    def send(self, kind: Kind, round: Round, rows: int, payload: Sequence[torch.Tensor]) -> None:
        """Raises PeerLost or RoundTimeout."""
        frame = pack(self._wire, Header(kind, round, self._own_index, rows))
        with self._sending:
            send(self._sock, frame, payload)

    def close(self) -> None:
        """Say goodbye, if no frame is under way, and end the stream. Idempotent, from any thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._sending.acquire(timeout=GOODBYE_WAIT_S):
            try:
                self._say_goodbye()
            finally:
                self._sending.release()
        self._shut()

    def _say_goodbye(self) -> None:
        round = Round(self._epoch, Phase.DECODE, 0, 0, 0)
        with contextlib.suppress(TransportError):
            send(self._sock, pack(self._wire, Header(Kind.GOODBYE, round, self._own_index, 0)), [])

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join()
        self._sock.close()

    def _read(self) -> None:
        try:
            while True:
                data = receive_header(self._sock)
                header = unpack(
                    self._wire, data, kind=self._incoming, epoch=self._epoch, source=self._peer_index
                )
                if header.kind is Kind.GOODBYE:
                    return
                self._receive(self._sock, header)
        except TransportError as error:
            if not self._closed.is_set():
                # Whoever says something wrong is not listened to any longer.
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
                self._lost(error)
