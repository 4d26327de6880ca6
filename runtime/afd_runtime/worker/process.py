"""The life of a worker process.

    settings -> http -> load (the tensor library is imported here, not before) -> control -> loop
    SIGTERM: the loop ends between two commands, or the process does after STOP_S

Peers need no farewell: the kernel closes the process's connections, which they notice at once.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import signal
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from afd_runtime.auth import shown
from afd_runtime.auth.shown import NoCredentialError
from afd_runtime.protocol.messages import Abort, Fault, FromWorker, Heartbeat, Register, Table, ToWorker
from afd_runtime.worker.control_channel import ControlChannel
from afd_runtime.worker.health import HealthServer
from afd_runtime.worker.membership import Membership
from afd_runtime.worker.proof_of_life import ProofOfLife
from afd_runtime.worker.settings import Settings, SettingsError, read
from afd_unit.identity import Member, Role
from afd_unit.unitfile import UnitFileError

log = logging.getLogger(__name__)

STOP_S = 1.0
"""Time to finish the command at hand. A step that takes longer is thrown away; it is run again."""
IDLE_S = 0.25
"""How often an idle main thread shows that it lives."""
STALL_ROUNDS = 3
"""A main thread that did not move for this many round time-outs is stuck."""


class RoleLoop(Protocol):
    """What a lane or an expert worker does with the commands that the main thread takes."""

    def introduce(self, register: Register) -> Register:
        """Complete the registration with what the role has to say; from any thread."""

    def interrupt(self, ended_epoch: int) -> None:
        """Epochs up to this one are over: end the waits of the step at hand; from any thread."""

    def wake(self) -> None:
        """A command waits in the inbox: make `serve` return; from any thread."""

    def enter(self, table: Table) -> None:
        """Take part in the epoch of `table`; `connected` says afterwards whether it could."""

    def leave(self, committed_step: int) -> None:
        """The epoch is over: drop what is open, go back to `committed_step`."""

    def act(self, message: ToWorker) -> None:
        """Any other command of this epoch."""

    @property
    def serves(self) -> bool:
        """Whether it has work that does not come by command: then nobody waits for the inbox."""

    def serve(self, timeout_s: float) -> None:
        """Do one piece of such work, or wait for one for at most `timeout_s`."""

    @property
    def connected(self) -> bool:
        """Whether it takes part in the epoch."""


class Worker:
    """What both roles share: identity, inbox, connection to the coordinator, faults."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._inbox: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self.membership = Membership(settings.member, secrets.randbits(63))
        self.life = ProofOfLife(settings.round_timeout_s * STALL_ROUNDS)
        self._stopping = threading.Event()
        self.ended = threading.Event()
        """`run` is over."""
        self.seen_step = 0
        """Highest step that this process was told of."""
        self._role: RoleLoop | None = None
        self.ended_epoch = 0
        """Epochs up to this one are over, though the command that says so may still be in the inbox."""
        self._told_epoch = 0
        """Highest epoch heard of. A coordinator that starts must know it, or its first number is old here."""
        self._faulted_epoch = 0
        self._faulting = threading.Lock()
        self._control = ControlChannel(
            settings.unit.coordinator,
            register=self._register,
            heartbeat=self._heartbeat,
            deliver=self._deliver,
            seated=self._seated,
        )

    # --- what is said to the coordinator

    def say(self, message: FromWorker) -> None:
        self._control.send(message)

    def fault(self, epoch: int, step: int, peer: Member | None, text: str) -> None:
        """Report that `epoch` cannot go on. Once an epoch: the first cause is the one that counts."""
        with self._faulting:
            if epoch <= self._faulted_epoch:
                return
            self._faulted_epoch = epoch
        log.warning("fault", extra={"epoch": epoch, "step": step, "peer": peer, "text": text})
        self.say(Fault(epoch=epoch, step=step, incarnation=self.membership.incarnation, peer=peer, text=text))

    def _register(self) -> Register:
        assert self._role is not None
        return self._role.introduce(
            Register(
                member=self.settings.member,
                incarnation=self.membership.incarnation,
                credential=shown.read(self.settings.credential_file),
                checkpoint="",
                epoch=self._told_epoch,
                committed_step=self.seen_step,
            )
        )

    def _heartbeat(self) -> Heartbeat | None:
        if not self.life.alive:
            return None
        return Heartbeat(incarnation=self.membership.incarnation, epoch=self.membership.epoch)

    # --- what the coordinator says

    def _seated(self, table: Table) -> bool:
        """Whether this table, just read, will be adopted with this process in it."""
        return table.epoch > self._told_epoch and self.membership.is_in(table)

    def _deliver(self, message: ToWorker) -> None:
        """On the control thread: commands wait in the inbox, but the end of an epoch does not."""
        assert self._role is not None, "the control channel starts after the role is there"
        if isinstance(message, Table | Abort):
            self._told_epoch = max(self._told_epoch, message.epoch)
            self.ended_epoch = message.epoch - isinstance(message, Table)
            self._role.interrupt(self.ended_epoch)
        self._inbox.put(message)
        self._role.wake()

    def _handle(self, role: RoleLoop, message: ToWorker) -> None:
        match message:
            case Table():
                if self.membership.adopt(message):
                    role.leave(message.committed_step)
                    if self.membership.seated:
                        log.info("epoch", extra={"epoch": message.epoch, "members": len(message.members)})
                        role.enter(message)
            case Abort():
                if self.membership.end(message):
                    role.leave(message.committed_step)
            case _:
                role.act(message)

    # --- life

    def health(self) -> str | None:
        return None if self.life.alive else f"the main thread has not moved for {self.life.limit_s:g} s"

    def readiness(self) -> str | None:
        """Why the worker cannot act now, or None."""
        if self._role is None:
            return "loading the checkpoint"
        if not self.membership.seated:
            return f"not in the member table (epoch {self.membership.epoch})"
        if not self._role.connected:
            return f"not connected to the members of epoch {self.membership.epoch}"
        return self.health()

    def run(self, role: RoleLoop) -> None:
        """Until `stop`."""
        self._role = role
        self._control.start()
        while not self._stopping.is_set():
            self.life.beat()
            try:
                message = self._inbox.get(block=not role.serves, timeout=IDLE_S)
            except queue.Empty:
                if role.serves:
                    role.serve(IDLE_S)
                continue
            if message is not None:
                self._handle(role, message)
        self._control.close()
        self.ended.set()

    def stop(self) -> None:
        """From any thread."""
        self._stopping.set()
        if self._role is not None:
            self._role.interrupt(sys.maxsize)
        self._inbox.put(None)


def start(role: Role, load: Callable[[Worker], RoleLoop]) -> int:
    """Run a worker until SIGTERM; returns the exit code. `load` builds the role from the checkpoint;
    a ValueError of it (checkpoint, limits) ends the process with its text as the reason."""
    threading.excepthook = _die
    # Blocked here, before any thread, and waited for by one of them: so a signal is noticed at once
    # even when the main thread is deep in a matrix product.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        worker = Worker(read(role, os.environ))
        HealthServer(
            _listen_host(worker.settings), worker.settings.http_port, worker.health, worker.readiness
        )
        threading.Thread(target=_wait_for_signal, args=(worker,), name="signals", daemon=True).start()
        worker.run(load(worker))
    except (SettingsError, UnitFileError, NoCredentialError, ValueError, OSError) as error:
        log.error("cannot-start", extra={"reason": error})
        return 1
    return 0


_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def _wait_for_signal(worker: Worker) -> None:
    number = signal.sigwait(_SIGNALS)
    log.info("stopping", extra={"signal": signal.Signals(number).name})
    worker.stop()
    worker.ended.wait(STOP_S)
    # Not by way of the interpreter's own end: with a tensor library loaded that takes another second.
    os._exit(0)


def _die(crash: threading.ExceptHookArgs) -> None:
    """A process that lost one of its threads would look alive and do nothing: end it, the kubelet
    starts a whole one."""
    log.critical(
        "thread-died", extra={"thread": crash.thread and crash.thread.name}, exc_info=crash.exc_value
    )
    os._exit(70)


def _listen_host(settings: Settings) -> str:
    """All addresses in a pod (probes come by its address, port-forwards by loopback); loopback only
    where that is all there is."""
    return settings.host if settings.host in ("127.0.0.1", "::1") else ""
