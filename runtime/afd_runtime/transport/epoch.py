"""What an endpoint must know of an epoch: who is in it and the key that proves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataEpoch:
    """`lanes`: lane index -> incarnation. `workers`: data address of each expert worker, by index."""

    number: int
    key: bytes
    lanes: Mapping[int, int]
    workers: Sequence[str]


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` -> (host, port); raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"data address {address!r} is not host:port")
    return host.strip("[]"), int(port)
