"""Messages <-> bounded msgpack frames."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from afd_runtime.protocol.messages import ToCoordinator, ToGateway, ToWorker

MAX_FRAME_BYTES = 4 << 20
"""A prompt of 131,072 tokens takes at most 5 bytes each, 0.7 MB; plans carry several. Receiving
sockets set this as ZMQ_MAXMSGSIZE, so a larger frame is never read into memory."""

Message = TypeVar("Message")

_encoder = msgspec.msgpack.Encoder()
_to_coordinator = msgspec.msgpack.Decoder(ToCoordinator)
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_to_gateway = msgspec.msgpack.Decoder(ToGateway)


class FrameError(ValueError):
    """A frame is too large, or is no message; the message says which."""


def encode(message: ToCoordinator | ToWorker | ToGateway) -> bytes:
    """Raises FrameError when the message would exceed `MAX_FRAME_BYTES`."""
    frame = _encoder.encode(message)
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameError(f"{type(message).__name__} of {len(frame)} bytes, at most {MAX_FRAME_BYTES}")
    return frame


def _decode(decoder: msgspec.msgpack.Decoder[Message], frame: bytes) -> Message:
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(frame)} bytes, at most {MAX_FRAME_BYTES}")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FrameError(f"not a message: {error}") from error


def decode_at_coordinator(frame: bytes) -> ToCoordinator:
    """Raises FrameError."""
    return _decode(_to_coordinator, frame)


def decode_at_worker(frame: bytes) -> ToWorker:
    """Raises FrameError."""
    return _decode(_to_worker, frame)


def decode_at_gateway(frame: bytes) -> ToGateway:
    """Raises FrameError."""
    return _decode(_to_gateway, frame)
