"""Real worker processes and a scripted coordinator to talk to them.

The coordinator here is a ROUTER socket and a list of what was said; tests decide what it answers. It
checks no credentials and plans nothing: the real one has tests of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import zmq

from afd_runtime.control import bounded
from afd_runtime.protocol.codec import decode_at_coordinator, encode
from afd_runtime.protocol.messages import (
    Abort,
    FromWorker,
    Heartbeat,
    MemberEntry,
    Refused,
    Register,
    Table,
    ToWorker,
)
from afd_runtime.protocol.plan import ExpertStep, StepPlan
from afd_unit import unitfile
from afd_unit.identity import Member, Role
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile

Message = TypeVar("Message", bound=FromWorker)
DATA_KEY = b"k" * 32
WAIT_S = 120.0
"""Two cores, several processes that each import a tensor library: the bound of every wait."""


class Coordinator:
    """Says what a test tells it to, hears everything."""

    def __init__(self, port: int = 0) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        bounded(self._socket)
        self.port = (
            self._socket.bind_to_random_port("tcp://127.0.0.1")
            if not port
            else self._socket.bind(f"tcp://127.0.0.1:{port}") and port
        )
        self.heard: list[FromWorker] = []
        self.peers: dict[Member, bytes] = {}
        self.registered: dict[Member, Register] = {}

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def listen(self, until: Callable[[], bool], what: str) -> None:
        """Take messages until `until()`; heartbeats are heard but not kept."""
        deadline = time.monotonic() + WAIT_S
        while not until():
            left = deadline - time.monotonic()
            assert left > 0, f"waited {WAIT_S} s for {what}; heard {self.heard[-5:]}"
            if self._socket.poll(min(100, int(left * 1000) + 1)):
                peer, frame = self._socket.recv_multipart()
                self._take(peer, decode_at_coordinator(frame))

    def _take(self, peer: bytes, message: object) -> None:
        assert isinstance(message, FromWorker)
        if isinstance(message, Register):
            self.peers[message.member] = peer
            self.registered[message.member] = message
        if not isinstance(message, Heartbeat):
            self.heard.append(message)

    def wait_for(self, kind: type[Message], count: int = 1) -> list[Message]:
        """The first `count` messages of a kind; they leave `heard`."""
        self.listen(lambda: sum(isinstance(m, kind) for m in self.heard) >= count, f"{count} {kind.__name__}")
        found = [m for m in self.heard if isinstance(m, kind)][:count]
        for message in found:
            self.heard.remove(message)
        return found

    def wait_for_members(self, count: int) -> None:
        self.listen(lambda: len(self.registered) >= count, f"{count} registered members")

    def add(self, register: Register) -> None:
        """A member that the test itself plays."""
        self.registered[register.member] = register

    def forget(self, member: Member) -> None:
        """As if it had never registered."""
        self.registered.pop(member, None)
        self.peers.pop(member, None)

    def say(self, member: Member, message: ToWorker | Refused) -> None:
        self._socket.send_multipart([self.peers[member], encode(message)])

    def announce(self, epoch: int, committed_step: int = 0) -> None:
        """The table of everyone who registered, told to everyone."""
        members = [
            MemberEntry(member=r.member, incarnation=r.incarnation, data_address=r.data_address)
            for r in self.registered.values()
        ]
        table = Table(epoch=epoch, members=members, data_key=DATA_KEY, committed_step=committed_step)
        for member in self.peers:
            self.say(member, table)

    def abort(self, epoch: int, committed_step: int) -> None:
        for member in self.peers:
            self.say(member, Abort(epoch=epoch, committed_step=committed_step))

    def step(self, plans: Mapping[Member, StepPlan]) -> None:
        """The plans to the lanes, and what they imply to the expert workers."""
        one = next(iter(plans.values()))
        experts = [member for member in self.registered if member.role is Role.EXPERT]
        for member in experts:
            self.say(
                member,
                ExpertStep(
                    epoch=one.epoch,
                    step=one.step,
                    phase=one.phase,
                    bucket=one.bucket,
                    microbatches=len(one.microbatches),
                ),
            )
        for member, plan in plans.items():
            self.say(member, plan)


@dataclass
class Worker:
    """One worker process, its log and its HTTP side."""

    member: Member
    process: subprocess.Popen[bytes]
    log: Path
    http: str

    def get(self, path: str) -> tuple[int, str]:
        """(status, body); status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self.http + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_for(self, path: str, status: int, body: str | None = None) -> None:
        """Until the answer is `status` (and `body`)."""
        deadline = time.monotonic() + WAIT_S
        while (got := self.get(path)) != (status, body or got[1]):
            assert time.monotonic() < deadline, f"{path} answers {got}; log:\n{self.log.read_text()}"
            time.sleep(0.02)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)


@dataclass
class Unit:
    """Starts worker processes of one unit, and ends them all."""

    folder: Path
    checkpoint: Path
    lanes: int
    experts: int
    context_length: int = 256
    environ: Mapping[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)

    def write(self, coordinator_port: int, host: str = "localhost") -> None:
        secret = self.folder / "secret"
        secret.write_text("a-shared-secret")
        unit = UnitFile(
            deployment="local/test",
            unit=0,
            model=Model(id="test", path=str(self.checkpoint), context_length=self.context_length),
            attention_workers=self.lanes,
            expert_workers=self.experts,
            gpus_per_node=1,
            microbatches=2,
            coordinator=f"{host}:{coordinator_port}",
            domain="local",
            auth=Auth(mode=AuthMode.SECRET, secret_file=str(secret)),
        )
        (self.folder / "unit.json").write_text(unitfile.encode(unit))

    def start(self, role: Role, index: int) -> Worker:
        http_port = free_port()
        log = self.folder / f"{role}-{index}-{len(self.workers)}.log"
        environ = {
            **os.environ,
            "AFD_UNIT_FILE": str(self.folder / "unit.json"),
            "AFD_POD_INDEX": str(index),
            "AFD_POD_IP": "127.0.0.1",
            "AFD_HTTP_PORT": str(http_port),
            "AFD_DATA_PORT": "0",
            **self.environ,
        }
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", f"afd_runtime.worker.{role}"], env=environ, stderr=sink, stdout=sink
            )
        worker = Worker(Member(0, role, index), process, log, f"http://127.0.0.1:{http_port}")
        self.workers.append(worker)
        return worker

    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def kill(self, member: Member) -> None:
        [worker] = [worker for worker in self.running() if worker.member == member]
        worker.stop()

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
