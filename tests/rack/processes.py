"""Start processes that outlive their starter, write them down, and end exactly those.

A process is known by (pid, start time): the kernel hands pids out again, but never with the same start
time. Records live in one file each below the rack's folder, so any other process can end the rack, also
after its starter was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

END_WITHIN_S = 20.0
"""A killed process that is still there after this hangs in the kernel: say so instead of waiting on."""


LOG_LINE_CHARACTERS = 300


class ProcessError(RuntimeError):
    """A process of the rack did not do what it must; the message ends with its log."""


@dataclass(frozen=True)
class Process:
    """A process of the rack: where it is recorded, and who it is."""

    name: str
    pid: int
    started: int
    """Field 22 of /proc/PID/stat: clock ticks since boot."""
    log: Path

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started

    def kill(self, signum: int = signal.SIGKILL) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def log_tail(self, lines: int = 25) -> str:
        """The end of its log, long lines cut."""
        with contextlib.suppress(OSError):
            said = self.log.read_text(errors="replace").splitlines()[-lines:]
            return "\n".join(line[:LOG_LINE_CHARACTERS] for line in said)
        return ""


def start_time(pid: int) -> int | None:
    """Start time of a living process; None for one that is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command's name may hold spaces and parentheses
    return None if fields[0] in "ZX" else int(fields[19])


class Processes:
    """Processes recorded in one folder: `<name>.pid` holds pid and start time, `<name>.log` the output."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], *, forks: bool = False) -> Process:
        """Start and record a process. `forks`: the command (`unshare --fork`, `nsenter --pid`) starts the
        process that counts as its only child and ends with it; the child is what is recorded."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        with open(log, "ab") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._folder,
                start_new_session=True,  # an interrupt at the terminal is for the starter
            )  # fmt: skip
        pid = self._only_child(child, log) if forks else child.pid
        self._children[pid] = child
        process = Process(name, pid, start_time(pid) or 0, log)
        record = self._folder / f"{name}.pid"
        record.with_suffix(".tmp").write_text(f"{process.pid} {process.started}\n")
        record.with_suffix(".tmp").rename(record)
        return process

    def _only_child(self, parent: subprocess.Popen[bytes], log: Path) -> int:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        while parent.poll() is None:
            found = children.read_text().split()
            if found:
                return int(found[0])
            time.sleep(0.002)
        raise ProcessError(f"{' '.join(map(str, parent.args))} ended at once:\n{log.read_text()[-2000:]}")

    def recorded(self) -> list[Process]:
        found = []
        for record in sorted(self._folder.glob("*.pid")):
            pid, started = record.read_text().split()
            found.append(Process(record.stem, int(pid), int(started), record.with_suffix(".log")))
        return found

    def named(self, name: str) -> Process:
        for process in self.recorded():
            if process.name == name:
                return process
        raise KeyError(f"no process {name!r}; there are {[process.name for process in self.recorded()]}")

    def end(self, name: str, signum: int = signal.SIGKILL) -> None:
        """End one process and forget it."""
        self._end([self.named(name)], signum)

    def end_all(self) -> None:
        """End all of them at once. Nothing of a rack outlives it, so nothing needs a graceful end."""
        self._end(self.recorded(), signal.SIGKILL)

    def _end(self, processes: list[Process], signum: int) -> None:
        for process in processes:
            process.kill(signum)
        deadline = time.monotonic() + END_WITHIN_S
        for process in processes:
            child = self._children.pop(process.pid, None)
            while process.alive:
                if time.monotonic() > deadline:
                    raise ProcessError(
                        f"{process.name} (pid {process.pid}) outlives SIGKILL by {END_WITHIN_S} s"
                    )
                time.sleep(0.01)
            if child is not None:
                child.wait()
            (self._folder / f"{process.name}.pid").unlink(missing_ok=True)
