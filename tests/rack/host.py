"""What the machine must have: nothing for hollow nodes, root and Debian packages for real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A Debian package and a file that shows that it is installed."""

    name: str
    shows: str

    @property
    def installed(self) -> bool:
        return Path(self.shows).exists() or shutil.which(self.shows, path=SEARCH_PATH) is not None


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NODE_PACKAGES = (
    Package("containerd", "containerd"),
    Package("runc", "runc"),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge"),
    Package("iproute2", "ip"),
    Package("nftables", "nft"),
    Package("iptables", "iptables"),
    Package("util-linux", "nsenter"),
)
IMAGE_PACKAGES = (Package("buildah", "buildah"), Package("debootstrap", "debootstrap"))


class HostError(RuntimeError):
    """This machine cannot hold such a rack; the message says why and what to do."""


def problem(*, real_nodes: bool) -> str | None:
    """Why this machine cannot hold such a rack, in a sentence; None if it can (after `prepare`)."""
    if sys.platform != "linux":
        return f"a rack needs Linux, this is {sys.platform}"
    if not real_nodes:
        return None
    if os.geteuid() != 0:
        return "real nodes need root (network namespaces, containers): run as root, e.g. `sudo -E make test`"
    missing = _missing()
    if missing and shutil.which("apt-get") is None:
        return f"real nodes need {', '.join(missing)}, and this machine has no apt-get to install them"
    return None


def prepare(*, real_nodes: bool) -> None:
    """Make the machine ready: as root, install missing Debian packages. Raises HostError."""
    trouble = problem(real_nodes=real_nodes)
    if trouble:
        raise HostError(trouble)
    missing = _missing() if real_nodes else []
    if not missing:
        return
    print(f"installing Debian packages: {' '.join(missing)}", file=sys.stderr, flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=environment,
        )  # fmt: skip
        if done.returncode:
            raise HostError(f"apt-get {' '.join(words)} failed:\n{done.stdout[-2000:]}")


def _missing() -> list[str]:
    return [package.name for package in (*NODE_PACKAGES, *IMAGE_PACKAGES) if not package.installed]
