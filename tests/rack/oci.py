"""Write an OCI image archive of one layer: enough for an image that is a single static command."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path


def single_command(archive: Path, reference: str, command: Path) -> None:
    """An image that holds `/command` and runs it. `reference` is `repository:tag`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, command.name, command.read_bytes(), mode=0o755)
    blobs = {_digest(layer.getvalue()): layer.getvalue()}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{command.name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": list(blobs)},
    }
    config_blob = _blob(blobs, config, "application/vnd.oci.image.config.v1+json")
    layer_blob = {
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": _digest(layer.getvalue()),
        "size": len(layer.getvalue()),
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config_blob,
        "layers": [layer_blob],
    }
    listed = _blob(blobs, manifest, manifest["mediaType"])
    listed |= {
        "annotations": {
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
        },
        "platform": {"architecture": "amd64", "os": "linux"},
    }
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode())
        for digest, data in blobs.items():
            _add(tar, f"blobs/{digest.replace(':', '/')}", data)


def _blob(blobs: dict[str, bytes], document: object, media_type: object) -> dict[str, object]:
    data = json.dumps(document).encode()
    blobs[_digest(data)] = data
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))
