"""The rack's cache folder: everything that is slow to make is made once, under a name that says what from.

    ${XDG_CACHE_HOME:-~/.cache}/afd-rack/
        go/            Go toolchain, module and build caches
        bin/           <go module>-<hash>/     the control plane's commands
        images/        <what>-<hash>/          root filesystems, wheels, image archives
        *.lock         one builder at a time

Entries are published whole: built in a folder beside their final name, then renamed. A builder that is
killed leaves a `.partial` folder that the next one removes, never a half entry.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

DIGEST_CHARACTERS = 16
"""Of a SHA-256, in entry names: 64 bits tell any number of entries of one machine apart."""


def folder() -> Path:
    """The cache folder; created at the first use of what lies in it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "afd-rack"


def digest(*parts: bytes | str) -> str:
    """Content hash of an entry. Parts are length-prefixed: ("ab", "c") and ("a", "bc") differ."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "big") + data)
    return hasher.hexdigest()[:DIGEST_CHARACTERS]


def digest_tree(root: Path, files: Iterable[Path]) -> str:
    """Content hash of files below `root`: names relative to it, execute bits and bytes."""
    parts: list[bytes | str] = []
    for path in sorted(files):
        parts += [str(path.relative_to(root)), str(path.stat().st_mode & 0o111), path.read_bytes()]
    return digest(*parts)


@contextmanager
def lock(name: str) -> Iterator[None]:
    """One holder at a time on this machine. The kernel lets go when the holder dies."""
    folder().mkdir(parents=True, exist_ok=True)
    with open(folder() / f"{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def entry(kind: str, name: str, build: Callable[[Path], None]) -> Path:
    """The folder `kind/name`, made by `build(empty folder)` unless it is there. Raises as `build` does."""
    final = folder() / kind / name
    if final.is_dir():
        return final
    with lock(f"{kind}-{name.rsplit('-', 1)[0]}"):
        if final.is_dir():
            return final
        partial = final.with_name(f"{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        build(partial)
        partial.rename(final)
    return final


def prune(kind: str, prefix: str, keep: int) -> None:
    """Drop all but the `keep` entries `prefix-*` that were made last."""
    made = sorted((folder() / kind).glob(f"{prefix}-*"), key=lambda path: path.stat().st_mtime)
    for path in made[: max(0, len(made) - keep)]:
        shutil.rmtree(path, ignore_errors=True)
