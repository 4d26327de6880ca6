"""One coordinator, as a gateway sees it: a session is one TCP connection.

    connect, hello --> welcome (serving or not) --> tokens ...        one session
         ^                                              |
         +-------- the connection breaks, or is refused +

Messages that were on their way when a connection broke are lost, in both directions. So a session
that ends takes all its requests with it: they are submitted again, with what they have, over
another. The socket itself would reconnect in silence; a monitor on it tells of the break instead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from afd_runtime import control
from afd_runtime.auth import shown
from afd_runtime.protocol import codec
from afd_runtime.protocol.messages import Cancel, GatewayHello, Refused, Rejected, Submit, Tokens, Welcome

log = logging.getLogger(__name__)

HELLO_AGAIN_S = 2.0
"""Without a welcome by then the hello is said again."""
REST_S = 0.2
"""Between two sessions; after a refusal longer."""
REFUSED_REST_S = 1.0


class Listener(Protocol):
    """Who is told what happens on a link."""

    def welcomed(self, link: Link) -> None: ...
    def lost(self, link: Link) -> None: ...
    def answered(self, link: Link, message: Tokens | Rejected) -> None: ...


class SessionEndedError(Exception):
    """Why the session is over; `rest_s` is how long to wait for the next."""

    def __init__(self, reason: str, rest_s: float = REST_S) -> None:
        super().__init__(reason)
        self.rest_s = rest_s


class Link:
    def __init__(
        self,
        address: str,
        listener: Listener,
        *,
        model_id: str,
        name: str,
        incarnation: int,
        credential: str,
    ) -> None:
        """`address` is `host:port`, `credential` the file to show."""
        self.address = address
        self.welcome: Welcome | None = None
        self._listener, self._model_id = listener, model_id
        self._name, self._incarnation, self._credential = name, incarnation, credential
        self._socket: zmq.Socket[bytes] | None = None

    @property
    def serving(self) -> bool:
        """This model, that is: while a deployment changes its model, units of both are there."""
        return self.welcome is not None and self.welcome.serving and self.welcome.model_id == self._model_id

    async def run(self) -> None:
        """Session after session, until cancelled."""
        while True:
            try:
                await self._session()
            except SessionEndedError as ended:
                log.info("coordinator lost", extra={"coordinator": self.address, "reason": ended})
                await asyncio.sleep(ended.rest_s)

    def send(self, message: Submit | Cancel) -> None:
        """Raises FrameError for a message beyond the limit. Without a session it goes nowhere: the
        end of the session was told, and whoever sends has been told so as well."""
        frame = codec.encode(message)
        if self._socket is not None:
            self._put(frame)

    def _put(self, frame: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            # Nobody reads at the other end; if that lasts, its heartbeat ends the session.
            log.warning("coordinator does not read", extra={"coordinator": self.address})

    async def _session(self) -> None:
        socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        self._socket = zmq.Socket.shadow(socket)
        control.bounded(self._socket)
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            socket.connect(f"tcp://{self.address}")
            watch = asyncio.create_task(self._until_broken(monitor))
            greet = asyncio.create_task(self._greet())
            read = asyncio.create_task(self._read(socket))
            tasks = [watch, greet, read]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._socket = None
            socket.disable_monitor()
            socket.close()
            monitor.close()
            if self.welcome is not None:
                self.welcome = None
                self._listener.lost(self)

    @staticmethod
    async def _until_broken(monitor: zmq.asyncio.Socket) -> None:
        await recv_monitor_message(monitor)
        raise SessionEndedError("connection broken")

    async def _greet(self) -> None:
        while self.welcome is None:
            try:
                credential = shown.read(self._credential)
            except shown.NoCredentialError as error:
                raise SessionEndedError(str(error), REFUSED_REST_S) from error
            hello = GatewayHello(name=self._name, incarnation=self._incarnation, credential=credential)
            self._put(codec.encode(hello))
            await asyncio.sleep(HELLO_AGAIN_S)

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frame = await socket.recv()
            try:
                message = codec.decode_at_gateway(frame)
            except codec.FrameError as error:
                raise SessionEndedError(str(error), REFUSED_REST_S) from error
            match message:
                case Welcome():
                    self._welcomed(message)
                case Refused():
                    raise SessionEndedError(f"refused: {message.reason}", REFUSED_REST_S)
                case Tokens() | Rejected():
                    self._listener.answered(self, message)

    def _welcomed(self, welcome: Welcome) -> None:
        if self.welcome is not None and self.welcome.incarnation != welcome.incarnation:
            raise SessionEndedError("another coordinator answers on the same connection")
        self.welcome = welcome
        log.info(
            "coordinator",
            extra={"coordinator": self.address, "serving": welcome.serving, "epoch": welcome.epoch},
        )
        self._listener.welcomed(self)
