"""Which rack numbers are taken, by whom, and what to do about a rack whose owner died.

    /tmp/afd-rack-<number>/owner      pid, start time, "kept" or "owned"

A rack is *owned* by the process that started it and ends with it, or *kept*: it stays until somebody
takes it down. An owned rack whose owner is gone (killed, power button) is *stale*; the next start removes
stale racks first, so nothing piles up.
"""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.rack import cache
from tests.rack.addresses import RACKS, Addresses
from tests.rack.processes import start_time

PREFIX = "afd-rack-"


class NoRoomError(RuntimeError):
    """Every rack number is taken."""


@dataclass(frozen=True)
class Claim:
    """A rack number that is taken, and the rack's folder."""

    number: int
    folder: Path

    @property
    def addresses(self) -> Addresses:
        return Addresses(self.number)

    @property
    def _owner(self) -> list[str]:
        try:
            return (self.folder / "owner").read_text().split()
        except OSError:
            return []

    @property
    def kept(self) -> bool:
        return self._owner[-1:] == ["kept"]

    @property
    def stale(self) -> bool:
        match self._owner:
            case [_, _, "kept"]:
                return False
            case [pid, started, "owned"]:
                return start_time(int(pid)) != int(started)
            case _:
                return True  # its owner died between the two steps of `take`

    def keep(self) -> None:
        self._write("kept")

    def _write(self, how: str) -> None:
        (self.folder / "owner").write_text(f"{os.getpid()} {start_time(os.getpid())} {how}\n")


def folder(number: int) -> Path:
    return Path(tempfile.gettempdir()) / f"{PREFIX}{number}"


def claims() -> list[Claim]:
    """The racks of this user on this machine."""
    found = [Claim(number, folder(number)) for number in range(RACKS)]
    return [claim for claim in found if claim.folder.is_dir() and claim.folder.stat().st_uid == os.getuid()]


def take() -> Claim:
    """Claim a free number: its folder is made, its ports are unused. Raises NoRoomError."""
    with cache.lock("racks"):
        for number in range(RACKS):
            if not all(_free(port) for port in Addresses(number).ports):
                continue
            try:
                folder(number).mkdir(mode=0o700)
            except FileExistsError:
                continue
            claim = Claim(number, folder(number))
            claim._write("owned")
            return claim
    raise NoRoomError(f"all {RACKS} racks of this machine are taken: `python -m tests.rack list` shows them")


def _free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
