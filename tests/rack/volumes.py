"""A folder of the host as a read-only volume: how torch and models reach containers from outside images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_SIZE = "10Gi"
"""Of no meaning for a hostPath volume; claim and volume must agree."""


def shared_folder(namespace: str, claim: str, folder: Path) -> list[dict[str, Any]]:
    """The volume, bound to the one claim that may use it, and the claim."""
    name = f"{namespace}-{claim}"
    access = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume = {
        **access,
        "capacity": {"storage": _SIZE},
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": namespace, "name": claim},
        "hostPath": {"path": str(folder.resolve()), "type": "Directory"},
    }
    request = {**access, "volumeName": name, "resources": {"requests": {"storage": _SIZE}}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": request,
        },
    ]
