"""A control group for each real node: all its pods are below it, and nothing of another node or rack is.

Both layouts of Linux are handled: one hierarchy (v2, what systemd sets up today), or one per controller (v1).
"""

from __future__ import annotations

import errno
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
EMPTY_WITHIN_S = 10.0
_CPUSET = ("cpuset.cpus", "cpuset.mems")


def create(name: str) -> None:
    """Make the group in every hierarchy. A kubelet wants its root to exist and have its controllers."""
    if _unified():
        _enable_controllers(ROOT)
        (ROOT / name).mkdir()
        _enable_controllers(ROOT / name)
        return
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir()
        for file in _CPUSET:  # a new v1 cpuset is empty, and refuses processes until it is not
            if (hierarchy / file).exists():
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def below(name: str, inner: str) -> list[Path]:
    """The groups called `inner` anywhere below the group `name`."""
    hierarchies = [ROOT] if _unified() else _hierarchies()
    return [path for hierarchy in hierarchies for path in (hierarchy / name).rglob(inner)]


def remove(prefix: str) -> None:
    """Remove the groups `prefix-*`, innermost first. Their processes are gone."""
    for hierarchy in [ROOT] if _unified() else _hierarchies():
        for group in hierarchy.glob(f"{prefix}-*"):
            inner = sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True)
            for path in [*inner, group]:
                _remove(path)


def _remove(group: Path) -> None:
    """The kernel lets go of a group a moment after its last process is gone."""
    deadline = time.monotonic() + EMPTY_WITHIN_S
    while True:
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    """v1 mounts; links such as `cpu,cpuacct` name one twice."""
    return [path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink()]


def _enable_controllers(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text().split()
    wanted = [f"+{controller}" for controller in V2_CONTROLLERS if controller in available]
    (group / "cgroup.subtree_control").write_text(" ".join(wanted))
