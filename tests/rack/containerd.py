"""containerd for a real node, and its root folder with the images already in it.

Importing images takes seconds per node, and every node of every rack needs the same ones. So they are
imported once, into a root folder in the cache; a node gets a copy of it. Content and unpacked layers never
change once written: they are hard-linked. The databases beside them do, and are copied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.rack import cache, clients
from tests.rack.processes import Processes
from tests.rack.shell import run

PAUSE_IMAGE = "localhost/pause:1"
KEEP_ROOTS = 3
ANSWERS_WITHIN_S = 30.0

_CONFIG = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.internal.v1.opt",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # runc fails with "can't get final child's PID from pipe: EOF" where CAP_SYS_RESOURCE is missing
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def write_config(folder: Path, root: Path) -> Path:
    """`folder` also gets the socket and the state."""
    config = folder / "containerd.toml"
    config.write_text(
        _CONFIG.format(
            root=root, state=folder / "state", socket=socket_of(folder), pause=PAUSE_IMAGE, cni=folder / "cni"
        )
    )
    return config


def socket_of(folder: Path) -> Path:
    return folder / "containerd.sock"


def answers(folder: Path) -> bool:
    command = ["ctr", "--address", str(socket_of(folder)), "--timeout", "2s", "version"]
    return (
        socket_of(folder).exists()
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def root_with(archives: Sequence[Path]) -> Path:
    """The cached containerd root that holds the images of `archives`, whose folders are named by content."""
    name = f"containerd-{cache.digest(*sorted(archive.parent.name for archive in archives))}"
    found = cache.entry("images", name, lambda folder: _import_all(archives, folder))
    os.utime(found)
    cache.prune("images", "containerd", KEEP_ROOTS)
    return found / "root"


def copy_root(source: Path, target: Path) -> None:
    """Hard links for what never changes, copies for the databases."""
    linked = subprocess.run(
        ["cp", "-a", "--link", str(source), str(target)], capture_output=True, check=False
    )
    if linked.returncode:  # another file system than the cache's
        shutil.rmtree(target, ignore_errors=True)
        run("cp", "-a", str(source), str(target))
        return
    for database in source.rglob("*.db"):
        if "snapshots" in database.parts:  # a file of an image that happens to be called so
            continue
        copy = target / database.relative_to(source)
        copy.unlink()
        shutil.copy2(database, copy)


def _import_all(archives: Sequence[Path], folder: Path) -> None:
    """Run a containerd of its own, in namespaces that end with it, just for the import."""
    work = folder / "work"
    work.mkdir()
    config = write_config(work, folder / "root")
    processes = Processes(work)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    daemon = processes.start(
        "containerd", [*unshare, "env", f"TMPDIR={work}", "containerd", "-c", str(config)], forks=True
    )
    try:
        clients.wait("containerd answers", lambda: answers(work), ANSWERS_WITHIN_S, seen=daemon.log_tail)
        for archive in archives:
            import_image(work, archive)
    finally:
        processes.end_all()
    shutil.rmtree(work)


def import_image(folder: Path, archive: Path) -> None:
    """Import an image archive into the containerd that lives in `folder`."""
    run(
        "ctr", "--address", str(socket_of(folder)), "--namespace", "k8s.io", "images", "import", str(archive),
        timeout_s=300,
    )  # fmt: skip
