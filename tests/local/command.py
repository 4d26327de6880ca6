"""`afd serve --local` as a user runs it: a process whose children can be found and killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
"""Generous: the machine may be busy with other tests. What a user waits is measured elsewhere."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], object], what: str, timeout_s: float = START_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@dataclass
class Command:
    process: subprocess.Popen[str]
    port: int
    folder: Path
    """Where its temporary files go."""
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def children(self) -> dict[str, int]:
        """Process id by role and index, from the kernel's own list."""
        found = {}
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in pids:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                environ = Path(f"/proc/{pid}/environ").read_text()
                if "worker" in words:
                    index = re.search(r"AFD_POD_INDEX=(\d+)", environ)
                    role = words[words.index("worker") + 1]
                    found[f"{role}-{index.group(1)}" if index else role] = int(pid)
        return found

    def metric(self, name: str, where: str = "") -> float:
        """Sum of a metric's series that contain `where`, from the coordinator."""
        words = Path(f"/proc/{self.children()['coordinator']}/cmdline").read_text().split("\0")
        port = words[words.index("--http-port") + 1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{") and where in line
        )

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=10):
                return True
        except OSError:
            return False

    def kill(self, child: str) -> None:
        """`kill -9`, and wait until another process has its place."""
        pid = self.children()[child]
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.children().get(child, pid) != pid, f"a new {child}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextlib.contextmanager
def serving(model: Path, scratch: Path, *options: str) -> Iterator[Command]:
    """The command, ready; ended afterwards, whatever happened."""
    port, log = free_port(), scratch / "afd.log"
    temporary = scratch / "tmp"
    temporary.mkdir()
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "afd_cli.main",
                "serve",
                "--local",
                str(model),
                "--port",
                str(port),
                *options,
            ],
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}/operator:{ROOT}/runtime",
                "TMPDIR": str(temporary),
                "AFD_LOG_LEVEL": "INFO",
            },
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    command = Command(process, port, temporary, log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "is served at" in line, f"it did not start:\n{log.read_text()}"
        yield command
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()
