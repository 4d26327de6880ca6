"""How a lane and an expert worker prove to one another that they are of the same epoch.

    lane                                   expert worker
      HELLO      who, epoch, wire format, nonce     ->
      CHALLENGE  verdict, nonce, HMAC(key, "expert", HELLO, nonces)    <-
      PROOF      HMAC(key, "lane", HELLO, nonces)   ->
      WELCOME    one byte                           <-

The key is the epoch's data key, which the coordinator tells to registered members only. Both sides'
nonces go into both proofs, so neither can be played back; the words "lane" and "expert" keep one
proof from serving as the other. What follows on the connection is not encrypted: both ends live in
one NVLink domain, the handshake keeps out strangers and leftovers of older epochs.

All records have a fixed size; nothing that a stranger sends is kept.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

from afd_runtime.transport.errors import Mismatch, PeerLost, TransportError
from afd_runtime.transport.round import WireFormat
from afd_runtime.transport.wire import DTYPES, MAGIC, receive_into

_HELLO = struct.Struct("<4sQIQIIIIB32s")
_CHALLENGE = struct.Struct("<BQ32s32s160s")
_PROOF_BYTES = 32
_NONCE_BYTES = 32
_WELCOME = b"\x01"


class Verdict(IntEnum):
    """The expert worker's answer to a HELLO."""

    PROVE = 0
    NOT_YET = 1
    """It has not heard of that epoch: ask again in a moment."""
    REFUSED = 2


class NotYet(TransportError):
    """The expert worker does not know the epoch yet."""


@dataclass(frozen=True)
class Hello:
    """Who a lane says it is, and for what."""

    epoch: int
    lane: int
    incarnation: int
    worker: int
    wire: WireFormat

    def pack(self, nonce: bytes) -> bytes:
        wire = self.wire
        return _HELLO.pack(
            MAGIC,
            self.epoch,
            self.lane,
            self.incarnation,
            self.worker,
            wire.hidden,
            wire.top_k,
            wire.max_rows,
            DTYPES.index(wire.dtype),
            nonce,
        )


def _unpack_hello(data: bytes) -> Hello:
    magic, epoch, lane, incarnation, worker, hidden, top_k, max_rows, dtype, _ = _HELLO.unpack(data)
    if magic != MAGIC or dtype >= len(DTYPES):
        raise Mismatch(f"hello with magic {magic!r}, dtype {dtype}: not a lane of this version")
    wire = WireFormat(hidden=hidden, top_k=top_k, max_rows=max_rows, dtype=DTYPES[dtype])
    return Hello(epoch, lane, incarnation, worker, wire)


def _proof(key: bytes, side: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, side + hello + nonce, sha256)


def greet(sock: socket.socket, hello: Hello, key: bytes) -> None:
    """The lane's side; raises NotYet, Mismatch (refused, with the worker's reason) or PeerLost."""
    sent = hello.pack(secrets.token_bytes(_NONCE_BYTES))
    _send(sock, sent)
    verdict, epoch, nonce, proof, reason = _CHALLENGE.unpack(_receive(sock, _CHALLENGE.size))
    if verdict == Verdict.NOT_YET:
        raise NotYet(f"it is in epoch {epoch}, not yet in {hello.epoch}")
    if verdict != Verdict.PROVE:
        raise Mismatch(f"refused: {reason.rstrip(bytes(1)).decode(errors='replace')}")
    if not hmac.compare_digest(proof, _proof(key, b"expert", sent, nonce)):
        raise Mismatch(f"it does not hold the key of epoch {hello.epoch}")
    _send(sock, _proof(key, b"lane", sent, nonce))
    if _receive(sock, len(_WELCOME)) != _WELCOME:
        raise Mismatch("no welcome after the proof")


def receive_greeting(sock: socket.socket, judge: Callable[[Hello], tuple[Verdict, int, bytes, str]]) -> Hello:
    """The expert worker's side. `judge(hello)` gives (verdict, its own epoch, key, reason).

    Returns the Hello of a lane that has proved itself; raises Mismatch or PeerLost otherwise, and
    NotYet for one that was sent away to ask again."""
    received = _receive(sock, _HELLO.size)
    hello = _unpack_hello(received)
    verdict, epoch, key, reason = judge(hello)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    proof = _proof(key, b"expert", received, nonce) if verdict is Verdict.PROVE else bytes(_PROOF_BYTES)
    _send(sock, _CHALLENGE.pack(verdict, epoch, nonce, proof, reason.encode()[:160]))
    if verdict is Verdict.NOT_YET:
        raise NotYet(reason)
    if verdict is Verdict.REFUSED:
        raise Mismatch(f"lane {hello.lane}: {reason}")
    if not hmac.compare_digest(_receive(sock, _PROOF_BYTES), _proof(key, b"lane", received, nonce)):
        raise Mismatch(f"lane {hello.lane} does not hold the key of epoch {hello.epoch}")
    _send(sock, _WELCOME)
    return hello


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data, socket.MSG_NOSIGNAL)
    except OSError as error:
        raise PeerLost(f"connection broke in the handshake: {error}") from error


def _receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    receive_into(sock, memoryview(data))
    return bytes(data)
