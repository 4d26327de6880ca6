"""The folder of a local unit: unit file and secret, for this user's eyes only.

It is removed when the unit ends. A unit that was killed cannot do that; so the next one removes the
folders of units that no longer live. Each holds a lock for as long as it lives, and the kernel lets
go of it however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "afd-local-"
LOCK = "lock"
SECRET_BYTES = 32


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_private(path: Path, text: str) -> None:
    """Mode 0600 from its first moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def new_secret() -> str:
    return secrets.token_hex(SECRET_BYTES)


def remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Others' folders cannot be opened, and one that is just being made has no lock file yet.
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
