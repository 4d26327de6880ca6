"""The images that the rack's nodes start with, as archives in the cache: made without any registry."""

from __future__ import annotations

from pathlib import Path

from tests.rack import cache, containerd, dns, oci
from tests.rack.binaries import Binaries


def system(binaries: Binaries) -> list[Path]:
    """What every node needs: the pause command of a pod's sandbox, and CoreDNS."""
    return [
        _single_command(containerd.PAUSE_IMAGE, Path(binaries["pause"])),
        _single_command(dns.IMAGE, Path(binaries["coredns"])),
    ]


def _single_command(reference: str, command: Path) -> Path:
    # The command's folder is named by the hash of what it was built from.
    name = f"{command.name}-{cache.digest(reference, command.parent.name, Path(oci.__file__).read_bytes())}"
    folder = cache.entry("images", name, lambda new: oci.single_command(new / f"{name}.tar", reference, command))
    return folder / f"{name}.tar"
