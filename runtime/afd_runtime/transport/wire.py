"""Frames of the TCP transport: a fixed header, then the payload straight into its slot.

    header 56 bytes   magic, kind, phase, dtype, epoch, step, layer, microbatch, source, rows,
                      hidden, top_k, payload bytes                            little endian
    DISPATCH          hidden rows x hidden | ids int32 rows x k | weights float32 rows x k
    COMBINE           hidden rows x hidden
    GOODBYE           nothing: the sender's epoch is over, its end of stream is no loss

A header is checked field by field before a byte of payload is read; rows are bounded by the
receiver's buffers, so no header can make it allocate.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from afd_runtime.protocol.plan import MAX_MICROBATCHES, Phase
from afd_runtime.transport.errors import Mismatch, PeerLost, RoundTimeout
from afd_runtime.transport.round import Round, WireFormat

MAGIC = b"AFD1"
HEADER = struct.Struct("<4sBBBxQQIIIIIIQ")


class Kind(IntEnum):
    DISPATCH = 1
    COMBINE = 2
    GOODBYE = 3


PHASES = (Phase.PREFILL, Phase.DECODE)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""By their number on the wire."""


@dataclass(frozen=True)
class Header:
    kind: Kind
    round: Round
    source: int
    rows: int


def payload_bytes(wire: WireFormat, kind: Kind, rows: int) -> int:
    row = wire.hidden * wire.dtype.itemsize
    if kind is Kind.DISPATCH:
        row += wire.top_k * 8
    return 0 if kind is Kind.GOODBYE else rows * row


def pack(wire: WireFormat, header: Header) -> bytes:
    round = header.round
    return HEADER.pack(
        MAGIC,
        header.kind,
        PHASES.index(round.phase),
        DTYPES.index(wire.dtype),
        round.epoch,
        round.step,
        round.layer,
        round.microbatch,
        header.source,
        header.rows,
        wire.hidden,
        wire.top_k,
        payload_bytes(wire, header.kind, header.rows),
    )


def unpack(wire: WireFormat, data: bytes, *, kind: Kind, epoch: int, source: int) -> Header:
    """The mirror image of `pack`; raises Mismatch unless it is a `kind` (or a goodbye) of `source` in
    `epoch`, in this wire format and within its buffers."""
    magic, number, phase, dtype, its_epoch, step, layer, microbatch, its_source, rows, hidden, top_k, size = (
        HEADER.unpack(data)
    )
    _same("magic", magic, MAGIC)
    if number != Kind.GOODBYE:
        _same("kind", number, int(kind))
    _same("epoch", its_epoch, epoch)
    _same("source", its_source, source)
    _same("dtype", dtype, DTYPES.index(wire.dtype))
    _same("hidden", hidden, wire.hidden)
    _same("top_k", top_k, wire.top_k)
    if phase >= len(PHASES) or microbatch >= MAX_MICROBATCHES or rows > wire.max_rows:
        raise Mismatch(
            f"header with phase {phase}, microbatch {microbatch}, {rows} rows: "
            f"at most {len(PHASES) - 1}, {MAX_MICROBATCHES - 1}, {wire.max_rows} are possible"
        )
    _same("payload", size, payload_bytes(wire, Kind(number), rows))
    return Header(Kind(number), Round(its_epoch, PHASES[phase], step, layer, microbatch), its_source, rows)


def _same(field: str, got: object, expected: object) -> None:
    if got != expected:
        raise Mismatch(f"header with {field} {got!r}, expected was {expected!r}")


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor; empty for one without elements."""
    if tensor.numel() == 0:
        return memoryview(b"")
    return tensor.view(torch.uint8).numpy().data.cast("B")


def send(sock: socket.socket, header: bytes, payload: Sequence[torch.Tensor]) -> None:
    """Send a frame without joining its parts; raises PeerLost, or RoundTimeout when the peer takes
    nothing for the socket's send time-out."""
    parts = [memoryview(header), *(bytes_of(tensor.contiguous()) for tensor in payload)]
    parts = [part for part in parts if len(part)]
    try:
        while parts:
            # A peer that is gone must be an error here, not a signal that ends the process.
            sent = sock.sendmsg(parts, [], socket.MSG_NOSIGNAL)
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if sent:
                parts[0] = parts[0][sent:]
    except BlockingIOError:
        raise RoundTimeout("the peer's receive window stays full") from None
    except OSError as error:
        raise PeerLost(f"connection broke: {error}") from error


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill `view`; raises PeerLost when the stream ends before."""
    while len(view):
        try:
            count = sock.recv_into(view)
        except OSError as error:
            raise PeerLost(f"connection broke: {error}") from error
        if count == 0:
            raise PeerLost("connection ended")
        view = view[count:]


def receive_header(sock: socket.socket) -> bytes:
    data = bytearray(HEADER.size)
    receive_into(sock, memoryview(data))
    return bytes(data)


def tune(sock: socket.socket, send_timeout_s: float) -> None:
    """Blocking, no Nagle delay, a bound on sends, and keep-alives that find a vanished host in ~5 s."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    seconds = int(send_timeout_s)
    interval = struct.pack("ll", seconds, int((send_timeout_s - seconds) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000)
