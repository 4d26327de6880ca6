"""Keeps one command running, as systemd does with `Restart=always`: what starts a node's kubelet.

    python service.py COMMAND ARGUMENT...

A command that ends, or is killed, is started again after a second. When this process is killed the
command is killed with it (PR_SET_PDEATHSIG), so whoever recorded this pid holds both. Standard library
only, started with -S -E: it runs in a node's namespaces.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

RESTART_AFTER_S = 1.0
"""systemd waits `RestartSec`; kubeadm's unit for the kubelet sets 10 s, a test would only wait longer."""
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(command: list[str]) -> None:
    while True:
        ended = subprocess.run(command, preexec_fn=die_with_parent, check=False).returncode
        print(f"{os.path.basename(command[0])} ended with {ended}, starts again", file=sys.stderr, flush=True)
        time.sleep(RESTART_AFTER_S)


if __name__ == "__main__":
    main(sys.argv[1:])
