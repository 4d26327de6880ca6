"""Which gateways are connected, and what they were last told of the unit."""

from __future__ import annotations

from afd_runtime.coordinator.members import Peer
from afd_runtime.protocol.messages import GatewayHello, Welcome


class Gateways:
    """A gateway is known by its name; its session is one connection."""

    def __init__(self) -> None:
        self._sessions: dict[Peer, GatewayHello] = {}
        self._told: Welcome | None = None

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._sessions

    def arrive(self, peer: Peer, hello: GatewayHello) -> list[Peer]:
        """Returns the sessions of the same gateway that this one replaces."""
        replaced = [
            other for other, known in self._sessions.items() if known.name == hello.name and other != peer
        ]
        for other in replaced:
            self.leave(other)
        self._sessions[peer] = hello
        return replaced

    def leave(self, peer: Peer) -> None:
        """The mirror image of `arrive`."""
        del self._sessions[peer]

    def to_greet(self, welcome: Welcome) -> list[Peer]:
        """Who must hear the news: everyone, if what gateways steer by has changed."""
        told, self._told = self._told, welcome
        if told is not None and _steering(told) == _steering(welcome):
            return []
        return list(self._sessions)


def _steering(welcome: Welcome) -> tuple[bool, int]:
    return welcome.serving, welcome.capacity_tokens
