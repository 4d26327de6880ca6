"""Options of the control sockets, the same on both ends of a connection.

ZeroMQ over TCP, one DEALER a peer to the coordinator's ROUTER. The ROUTER names connections itself
(no routing ids of the peers' choosing, no handover): whoever claims to be another gets a connection
of its own and must still prove it, and can never take over one that is authenticated.
"""

from __future__ import annotations

import zmq

from afd_runtime.protocol.codec import MAX_FRAME_BYTES

HEARTBEAT_MS = 1000
"""ZMTP pings: a host that vanished without closing its connections is noticed."""
DEAD_AFTER_MS = 3000
QUEUED_MESSAGES = 100_000
"""Of one connection. A peer that falls behind by more counts as gone; lanes have 3 at most, a
gateway one for each token that it has not read."""


def bounded(socket: zmq.Socket[bytes]) -> None:
    """Set before bind or connect."""
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, DEAD_AFTER_MS)
    socket.setsockopt(zmq.SNDHWM, QUEUED_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, QUEUED_MESSAGES)
