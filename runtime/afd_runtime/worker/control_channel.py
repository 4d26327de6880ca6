"""The worker's end of the control connection: a thread that owns the socket.

    coordinator --frames--> deliver(message), in order        commands, for the main thread
    outbox      --frames--> coordinator                       results and faults, from any thread
    connected   --> Register, then a Heartbeat every HEARTBEAT_S while the main thread lives

The connection is kept up by ZeroMQ: it resolves the coordinator's name anew at each try and tries
for ever. What is said while there is no connection is dropped: results of an epoch are worthless to
the coordinator that comes next.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable

import zmq
from zmq.utils.monitor import recv_monitor_message

from afd_runtime.auth.shown import NoCredentialError
from afd_runtime.control import bounded
from afd_runtime.protocol.codec import FrameError, decode_at_worker, encode
from afd_runtime.protocol.messages import Abort, FromWorker, Heartbeat, Refused, Register, Table, ToWorker
from afd_runtime.worker.registration import Registration

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
RECONNECT_MS = 100
RECONNECT_MAX_MS = 1000


class ControlChannel:
    """`register` makes the introduction, `heartbeat` a sign of life or None for silence, `deliver`
    takes a command and says, for a table, whether this process is in it."""

    def __init__(
        self,
        address: str,
        *,
        register: Callable[[], Register],
        heartbeat: Callable[[], Heartbeat | None],
        deliver: Callable[[ToWorker], None],
        seated: Callable[[Table], bool],
    ) -> None:
        self._address = address
        self._register = register
        self._heartbeat = heartbeat
        self._deliver = deliver
        self._seated = seated
        self._registration = Registration()
        self._outbox: queue.SimpleQueue[FromWorker] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, message: FromWorker) -> None:
        """From any thread; never waits."""
        self._outbox.put(message)
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends the connection, after what is in the outbox was handed to it. Call once."""
        self._stopping.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        bounded(socket)
        # No queue without a connection, and what a lost one left unread is dropped with it: a dead
        # coordinator's table, read after the introduction to the next, would pass for the next one's.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        socket.connect(f"tcp://{self._address}")
        try:
            self._loop(socket, monitor)
        finally:
            socket.disable_monitor()
            monitor.close()
            socket.close()
            context.term()

    def _loop(self, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        for source in (socket, monitor, self._wake):
            poller.register(source, zmq.POLLIN)
        beat_s = 0.0
        while not self._stopping.is_set():
            ready = dict(poller.poll(max(0, int((beat_s - time.monotonic()) * 1000) + 1)))
            if monitor in ready:
                self._connection_changed(monitor)
            if socket in ready:
                self._receive(socket)
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self._send_outbox(socket)
            now_s = time.monotonic()
            if self._registration.due(now_s):
                self._introduce(socket, now_s)
            if now_s >= beat_s:
                beat_s = now_s + HEARTBEAT_S
                if (sign := self._heartbeat()) is not None:
                    self._say(socket, sign)
        self._send_outbox(socket)

    def _connection_changed(self, monitor: zmq.Socket[bytes]) -> None:
        if recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED:
            log.warning("coordinator-lost", extra={"address": self._address})
            self._registration.on_disconnected()
        else:
            log.info("coordinator-found", extra={"address": self._address})
            self._registration.on_connected(time.monotonic())

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        try:
            message = decode_at_worker(socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return
        except FrameError as error:
            log.warning("frame-dropped", extra={"reason": error})
            return
        now_s = time.monotonic()
        match message:
            case Refused():
                log.warning("refused", extra={"reason": message.reason})
                self._registration.on_refused(now_s)
                return
            case Table():
                self._registration.on_table(now_s, seated=self._seated(message))
            case Abort():
                self._registration.on_abort(now_s)
            case _:
                pass
        self._deliver(message)

    def _introduce(self, socket: zmq.Socket[bytes], now_s: float) -> None:
        try:
            self._say(socket, self._register())
            self._registration.on_sent(now_s)
        except NoCredentialError as error:
            log.warning("no-credential", extra={"reason": error})
            self._registration.on_refused(now_s)

    def _send_outbox(self, socket: zmq.Socket[bytes]) -> None:
        while True:
            try:
                message = self._outbox.get_nowait()
            except queue.Empty:
                return
            self._say(socket, message)

    def _say(self, socket: zmq.Socket[bytes], message: FromWorker) -> None:
        try:
            socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            log.debug("not-said", extra={"message_type": type(message).__name__})
