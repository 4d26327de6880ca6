"""What can go wrong between a lane and an expert worker. Each message names the peer, the round and,
for a mismatch, both values."""

from __future__ import annotations

from typing import Self


class TransportError(RuntimeError):
    """Base of all below: the round cannot be finished in this epoch.

    `peer` is the index of who is to blame, if somebody is: of the expert worker when a lane says so,
    of the lane when an expert worker does."""

    def __init__(self, text: str, peer: int | None = None) -> None:
        super().__init__(text)
        self.peer = peer

    def by(self, peer: int, where: str) -> Self:
        """The same error with the peer to blame and `where` it happened, unless it says so already."""
        return self if self.peer is not None else type(self)(f"{where}: {self}", peer)

    def again(self) -> Self:
        """A fresh copy, to be raised in another thread."""
        return type(self)(str(self), self.peer)


class SlotInUse(TransportError):
    """A dispatch into a slot whose combine has not been pulled."""


class Mismatch(TransportError):
    """A header says what the receiver did not expect: another epoch, round, width or size."""


class RoundTimeout(TransportError):
    """A peer did not deliver in time."""


class PeerLost(TransportError):
    """A peer's connection ended without a goodbye."""


class EndpointClosed(TransportError):
    """This side closed the endpoint: the epoch is over, or the process is ending."""
