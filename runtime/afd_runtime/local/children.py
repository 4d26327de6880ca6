"""The unit's processes as children of this one: what a kubelet does for containers.

    start --> runs --ends--> wait (0.2 s, doubled up to 10 s) --> start ...     until `end`

A child has a process group of its own, so that Ctrl-C reaches this process alone, which then ends
the others in order. It also has a parent-death signal: the kernel kills it when this process dies,
however that happens. So nothing outlives the command, not even after `kill -9`.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from afd_runtime.local.layout import Process

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0
STABLE_S = 10.0
"""A child that lived this long starts anew with the first wait."""
TERM_S = 5.0
"""From SIGTERM to SIGKILL."""
GIVE_UP_AFTER = 3
"""Ends of one process before the unit has ever served: it will not get better by itself."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ChildFailedError(Exception):
    """A process keeps ending before the unit has ever served."""


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died in between: then nobody would tell.
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class Child:
    """One place of the unit and the process in it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid: int | None = None
        self.ends = 0
        """How often a process in this place has ended by itself."""
        self._wait_s = FIRST_WAIT_S

    async def run(self) -> None:
        """Keep a process in this place, until cancelled; then it is ended."""
        while True:
            started_s = time.monotonic()
            code = await self._once()
            self.ends += 1
            if time.monotonic() - started_s >= STABLE_S:
                self._wait_s = FIRST_WAIT_S
            log.warning(
                "ended", extra={"child": self.process.name, "status": _status(code), "again_s": self._wait_s}
            )
            await asyncio.sleep(self._wait_s)
            self._wait_s = min(LONGEST_WAIT_S, self._wait_s * 2)

    async def _once(self) -> int:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "afd_cli.main", *self.process.arguments),
            env={**os.environ, **self.process.environment},
            stdin=asyncio.subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_die_with_parent(os.getpid()),
        )
        self.pid = child.pid
        try:
            return await child.wait()
        finally:
            if child.returncode is None:
                await _end(child)
            self.pid = None


async def _end(child: asyncio.subprocess.Process) -> None:
    child.terminate()
    try:
        await asyncio.wait_for(child.wait(), TERM_S)
    except TimeoutError:
        child.kill()
        await child.wait()


def _status(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class Children:
    """All of them: started together, ended together."""

    def __init__(self, processes: list[Process]) -> None:
        self._children = [Child(process) for process in processes]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(child.run()) for child in self._children]

    def check(self) -> None:
        """Raises ChildFailedError; call it while the unit has not served yet."""
        for child in self._children:
            if child.ends >= GIVE_UP_AFTER:
                raise ChildFailedError(
                    f"{child.process.name} ended {child.ends} times before the unit served; "
                    "its last lines above say why"
                )

    async def end(self) -> None:
        """The mirror image of `start`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
