"""The unit file: what the operator tells every process of a unit, `unit.json` from a ConfigMap.

It says what the unit *should be*; who is *in it now* is the coordinator's member table. The file is
the same for all processes of a unit. Which of them a process is comes by environment:

    AFD_UNIT_FILE     path of this file                 (all)
    AFD_POD_INDEX     index of the pod in its role      (attention, expert)
    AFD_DEVICE        index of the GPU in the pod       (attention, expert)
    AFD_POD_NAME      metadata.name                     (all)
    AFD_POD_IP        status.podIP                      (all)
    AFD_TOKEN_FILE    projected token, audience `afd`   (all; absent in local mode)

A reader refuses a `version` that it does not know and a field that it does not know: a unit never
mixes versions, so an unknown field is a mistake, not the future.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

VERSION = 1


class UnitFileError(ValueError):
    """The unit file cannot be used; the message names the field and what is wrong with it."""


class AuthMode(StrEnum):
    """How parties of a unit prove who they are."""

    SERVICE_ACCOUNT = "serviceAccount"
    """By projected tokens; the coordinator checks them against the API server's published keys."""
    SECRET = "secret"
    """By a shared secret in a file that only the user can read: `afd serve --local`."""


class _Base(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class Model(_Base, frozen=True, kw_only=True):
    """Which checkpoint the unit serves."""

    id: str
    """Name under which clients ask for it."""
    path: str
    """Folder of config.json, *.safetensors and tokenizer.json inside the container."""
    context_length: int
    """Most tokens of prompt and answer together."""
    kv_cache_dtype: str = "auto"


class Auth(_Base, frozen=True, kw_only=True):
    """Who may join, and who may read the status."""

    mode: AuthMode
    secret_file: str | None = None
    """Mode `secret`: path of the file with the shared secret."""
    service_account: str | None = None
    """Mode `serviceAccount`: `namespace/name` that workers and gateways run as."""
    status_reader: str | None = None
    """Mode `serviceAccount`: `namespace/name` that may read `/status` (the operator)."""


class UnitFile(_Base, frozen=True, kw_only=True):
    """One unit as the operator wants it. Counts of workers are counts of GPUs."""

    version: int = VERSION
    deployment: str
    """`namespace/name` of the AFDDeployment; `local/<model>` without Kubernetes."""
    unit: int
    model: Model
    attention_workers: int
    expert_workers: int
    gpus_per_node: int
    microbatches: int
    coordinator: str
    """`host:port` of the coordinator's control socket."""
    domain: str
    """Value of the topology label that the whole unit shares; `local` without Kubernetes."""
    auth: Auth

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise UnitFileError(f"version {self.version} of the unit file, this runtime reads {VERSION}")
        for name in ("attention_workers", "expert_workers", "gpus_per_node", "microbatches"):
            if getattr(self, name) < 1:
                raise UnitFileError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.model.context_length < 1:
            raise UnitFileError(f"model.contextLength is {self.model.context_length}, must be at least 1")


def encode(unit: UnitFile) -> str:
    """The unit file as JSON, the same text for the same value (it ends up in a hash)."""
    return msgspec.json.format(msgspec.json.encode(unit, order="deterministic"), indent=2).decode()


def decode(text: str | bytes) -> UnitFile:
    """The mirror image of `encode`; raises UnitFileError."""
    try:
        return msgspec.json.decode(text, type=UnitFile)
    except msgspec.ValidationError as error:
        raise UnitFileError(f"unit file: {error}") from error
    except msgspec.DecodeError as error:
        raise UnitFileError(f"unit file is not JSON: {error}") from error


def read(path: str | Path) -> UnitFile:
    """Decode the file at `path`; raises UnitFileError naming it."""
    try:
        return decode(Path(path).read_bytes())
    except (OSError, UnitFileError) as error:
        raise UnitFileError(f"{path}: {error}") from error
