"""Process 1 of a real node: gives the node a file system view of its own, then reaps.

Runs in fresh mount, pid and network namespaces, so the kernel removes everything of the node (containers,
mounts, sockets) when this process ends. The view differs from the host's where a kubelet or containerd
insists on a fixed path, so that several nodes and the host do not meet there:

    /run, /var/log      empty (shim sockets, network namespaces, links to container logs)
    /var/lib            the host's, writes go to the node's folder (device plugins, CNI results)
    /proc/sys/...       the kernel settings that a kubelet insists on: files, instead of the host's own

Usage: node_init.py NODE_FOLDER
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelets set (kubernetes: pkg/kubelet/cm, setupKernelTunables). The host keeps its own values."""
READY = "init.ready"


def main(folder: Path) -> None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        target = line.split()[1]
        if target.startswith("/run/netns/"):  # a copy here would keep other racks' networks alive
            mount("umount", "--lazy", target)
    for target in ("/run", "/var/log"):
        mount("mount", "-t", "tmpfs", "-o", "mode=755,size=64m", "tmpfs", target)
    upper, work = folder / "var-lib", folder / "var-lib.work"
    upper.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    options = f"lowerdir=/var/lib,upperdir={upper},workdir={work}"
    mount("mount", "-t", "overlay", "-o", options, "overlay", "/var/lib")
    for setting, value in KERNEL_SETTINGS.items():
        file = folder / "proc-sys" / setting
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        mount("mount", "--bind", str(file), f"/proc/sys/{setting}")
    (folder / READY).touch()
    reap()


def mount(*command: str) -> None:
    subprocess.run(command, check=True)


def reap() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
        signal.sigwait([signal.SIGCHLD])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
