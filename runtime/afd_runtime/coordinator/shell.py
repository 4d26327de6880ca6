"""Carries messages between the control socket and the core, and tells the core the time.

One loop owns the core: read all that has arrived, then let time pass, then send. So a worker is
never taken for silent while its heartbeat lies unread. Sending never waits: a peer whose connection
is closed, or who does not read, is gone at once; a killed worker is found out by the next plan.
"""

from __future__ import annotations

import asyncio
import logging
import time

import zmq
import zmq.asyncio

from afd_runtime import control
from afd_runtime.auth.judge import DeniedError, Judge
from afd_runtime.coordinator.core import Coordinator
from afd_runtime.coordinator.members import Peer
from afd_runtime.coordinator.observer import Observer
from afd_runtime.protocol import codec
from afd_runtime.protocol.messages import (
    Cancel,
    ExpertResult,
    Fault,
    GatewayHello,
    Heartbeat,
    LaneResult,
    Refused,
    Register,
    Submit,
    ToCoordinator,
)

log = logging.getLogger(__name__)

TICK_S = 0.1
READ_AT_MOST = 256
"""Messages between two sends."""
VERIFY_AT_MOST = 64
"""Credentials under verification at one time; more are dropped, their senders try again."""


class Shell:
    def __init__(self, core: Coordinator, judge: Judge, observer: Observer, *, address: str) -> None:
        """Binds `address`, raises zmq.ZMQError if that cannot be."""
        self._core, self._judge, self._observer = core, judge, observer
        self._socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
        self._now: zmq.Socket[bytes] = zmq.Socket.shadow(self._socket)
        control.bounded(self._now)
        self._now.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._now.bind(address)
        self._verifying: dict[Peer, asyncio.Task[None]] = {}

    async def run(self) -> None:
        ticked_s = 0.0
        while True:
            await self._socket.poll(int(TICK_S * 1000))
            self._read()
            if time.monotonic() - ticked_s >= TICK_S:
                ticked_s = time.monotonic()
                self._core.tick(ticked_s)
            self._flush()

    def close(self) -> None:
        for task in self._verifying.values():
            task.cancel()
        self._socket.close()

    def _read(self) -> None:
        for _ in range(READ_AT_MOST):
            try:
                peer, *frames = self._now.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                # More than one frame is not a message of ours.
                message = codec.decode_at_coordinator(frames[0] if len(frames) == 1 else b"")
            except codec.FrameError as error:
                self._observer.dropped("unreadable")
                log.debug("unreadable", extra={"error": error})
                continue
            self._hear(peer, message)

    def _hear(self, peer: Peer, message: ToCoordinator) -> None:
        now_s = time.monotonic()
        match message:
            case Register() | GatewayHello():
                self._verify(peer, message)
            case _ if peer in self._verifying:
                self._observer.dropped("unauthenticated")
            case Submit() | Cancel():
                self._core.gateway_said(peer, message, now_s)
            case Heartbeat() | LaneResult() | ExpertResult() | Fault():
                self._core.worker_said(peer, message, now_s)

    def _verify(self, peer: Peer, message: Register | GatewayHello) -> None:
        """Beside the loop: it may have to ask the API server for its keys."""
        if peer in self._verifying or len(self._verifying) >= VERIFY_AT_MOST:
            self._observer.dropped("unauthenticated")
            return
        self._verifying[peer] = asyncio.create_task(self._admit(peer, message))

    async def _admit(self, peer: Peer, message: Register | GatewayHello) -> None:
        try:
            if isinstance(message, Register):
                await self._judge.worker(message.credential, message.member)
                self._core.registered(peer, message, time.monotonic())
            else:
                await self._judge.gateway(message.credential)
                self._core.hello(peer, message, time.monotonic())
        except DeniedError as error:
            log.warning("denied", extra={"who": _who(message), "reason": error})
            self._observer.dropped("unauthenticated")
            self._send(peer, codec.encode(Refused(reason=str(error))))
        finally:
            del self._verifying[peer]
        self._flush()

    def _flush(self) -> None:
        while outbox := self._core.take_outbox():
            gone = [peer for peer, message in outbox if not self._send(peer, codec.encode(message))]
            for peer in dict.fromkeys(gone):
                self._core.gone(peer, time.monotonic())

    def _send(self, peer: Peer, frame: bytes) -> bool:
        try:
            self._now.send_multipart([peer, frame], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True


def _who(message: Register | GatewayHello) -> str:
    return str(message.member) if isinstance(message, Register) else f"gateway {message.name}"
