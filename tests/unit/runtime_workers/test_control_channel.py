"""The worker's end of the control connection against real sockets: what a dead coordinator left unread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import zmq

from afd_runtime.control import bounded
from afd_runtime.protocol import codec
from afd_runtime.protocol.messages import Heartbeat, MemberEntry, Register, Table, ToWorker
from afd_runtime.worker.control_channel import ControlChannel
from afd_unit.identity import Member, Role

MEMBER = Member(0, Role.EXPERT, 0)
WITHIN_MS = 20_000


def table(epoch: int) -> Table:
    entry = MemberEntry(member=MEMBER, incarnation=1, data_address="127.0.0.1:1")
    return Table(epoch=epoch, members=[entry], data_key=b"k" * 32, committed_step=0)


class Coordinator:
    """A ROUTER that says what a test tells it to."""

    def __init__(self, port: int = 0) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        bounded(self.socket)
        self.socket.bind(f"tcp://127.0.0.1:{port or '*'}")
        self.port = int(self.socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def introduced(self) -> bytes:
        """Waits for a Register; returns the connection it came by."""
        while self.socket.poll(WITHIN_MS):
            peer, frame = self.socket.recv_multipart()
            if isinstance(codec.decode_at_coordinator(frame), Register):
                return peer
        pytest.fail("no worker introduced itself")

    def say(self, peer: bytes, message: ToWorker) -> None:
        self.socket.send_multipart([peer, codec.encode(message)])

    def die(self) -> None:
        self.socket.close(linger=1000)
        self.context.term()


class Worker:
    """Takes messages one at a time: each waits until `go_on`."""

    def __init__(self, port: int) -> None:
        self.heard: list[ToWorker] = []
        self.busy, self.free = threading.Event(), threading.Event()
        self.channel = ControlChannel(
            f"127.0.0.1:{port}",
            register=lambda: Register(
                member=MEMBER, incarnation=1, credential="", checkpoint="c", data_address="127.0.0.1:1"
            ),
            heartbeat=lambda: Heartbeat(incarnation=1, epoch=0),
            deliver=self._deliver,
            seated=lambda _: True,
        )
        self.channel.start()

    def _deliver(self, message: ToWorker) -> None:
        self.heard.append(message)
        self.busy.set()
        assert self.free.wait(WITHIN_MS / 1000)


@pytest.fixture
def first() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    if not coordinator.socket.closed:
        coordinator.die()


def test_a_dead_coordinators_table_is_not_read_after_the_introduction_to_the_next(first: Coordinator) -> None:
    """Else it passes for the next one's, and the next one's own, with the same number, for an old one."""
    worker = Worker(first.port)
    peer = first.introduced()
    first.say(peer, table(1))
    assert worker.busy.wait(WITHIN_MS / 1000)
    first.say(peer, table(2))
    first.die()
    second = Coordinator(first.port)
    try:
        worker.free.set()
        peer = second.introduced()
        worker.busy.clear()
        second.say(peer, table(3))
        assert worker.busy.wait(WITHIN_MS / 1000)
        assert [message.epoch for message in worker.heard if isinstance(message, Table)] == [1, 3]
    finally:
        worker.channel.close()
        second.die()
