"""What can go wrong between a lane and an expert worker. Each message names the peer, the round and,
for a mismatch, both values."""

from __future__ import annotations


class TransportError(RuntimeError):
    """Base of all below: the round cannot be finished in this epoch."""


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
