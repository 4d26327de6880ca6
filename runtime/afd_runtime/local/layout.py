"""Which processes make up a local unit. Pure: the same for the same arguments.

    gateway ---- coordinator ---- attention 0 .. M-1 , expert 0 .. N-1        all on 127.0.0.1

As in a cluster every worker is a container of its own pod with one GPU, so its index is its pod's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from afd_unit import unitfile
from afd_unit.identity import Role
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile

LOOPBACK = "127.0.0.1"
MOST_CONTEXT_TOKENS = 8192
"""Unless asked for: a checkpoint's own limit may need more memory for keys and values than there is."""


class LocalError(Exception):
    """The unit cannot be started; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    model: Path
    model_id: str
    attention: int
    expert: int
    microbatches: int
    context_length: int
    host: str
    port: int


@dataclass(frozen=True)
class Ports:
    """Free ones, found by whoever starts the unit."""

    control: int
    coordinator_http: int


@dataclass(frozen=True)
class Process:
    name: str
    """`attention-0`"""
    arguments: tuple[str, ...]
    """Of `afd`."""
    environment: dict[str, str]


def check(model: Path) -> None:
    """Raises LocalError for a folder without what the processes will need; they would say so too, but
    later, and over and over."""
    for pattern in ("config.json", "*.safetensors", "tokenizer.json"):
        if not any(model.glob(pattern)):
            raise LocalError(f"{model} is not a model folder: it has no {pattern}")


def context_length(model: Path, asked: int | None) -> int:
    """Raises LocalError for a config that cannot be read, or a context beyond the model's."""
    config = model / "config.json"
    try:
        most = json.loads(config.read_text()).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError) as error:
        raise LocalError(f"{config}: {error}") from error
    if not isinstance(most, int):
        most = MOST_CONTEXT_TOKENS
    if asked is not None and asked > most:
        raise LocalError(f"--context-length {asked}: the model was made for at most {most} tokens")
    return asked or min(most, MOST_CONTEXT_TOKENS)


def unit_file(wanted: Wanted, ports: Ports, secret: Path) -> UnitFile:
    return UnitFile(
        deployment=f"local/{wanted.model_id}",
        unit=0,
        model=Model(id=wanted.model_id, path=str(wanted.model), context_length=wanted.context_length),
        attention_workers=wanted.attention,
        expert_workers=wanted.expert,
        gpus_per_node=1,
        microbatches=wanted.microbatches,
        coordinator=f"{LOOPBACK}:{ports.control}",
        domain="local",
        auth=Auth(mode=AuthMode.SECRET, secret_file=str(secret)),
    )


def processes(unit: UnitFile, wanted: Wanted, ports: Ports, file: Path, *, cores: int) -> list[Process]:
    """In the order in which they are started: the slow ones first."""
    threads = str(max(1, cores // (wanted.attention + wanted.expert)))
    worker = {
        "AFD_UNIT_FILE": str(file),
        "AFD_DEVICE": "0",
        "AFD_POD_IP": LOOPBACK,
        "AFD_HTTP_PORT": "0",
        "AFD_DATA_PORT": "0",
        "AFD_THREADS": threads,
        "OMP_NUM_THREADS": threads,
    }
    counts = ((Role.EXPERT, wanted.expert), (Role.ATTENTION, wanted.attention))
    workers = [
        Process(f"{role}-{index}", ("worker", role), {**worker, "AFD_POD_INDEX": str(index)})
        for role, count in counts
        for index in range(count)
    ]
    coordinator = Process(
        "coordinator",
        (
            *("worker", Role.COORDINATOR, "--host", LOOPBACK),
            *("--control-port", str(ports.control), "--http-port", str(ports.coordinator_http)),
        ),
        {"AFD_UNIT_FILE": str(file)},
    )
    gateway = Process(
        "gateway",
        ("worker", Role.GATEWAY, "--host", wanted.host, "--port", str(wanted.port)),
        {
            "AFD_COORDINATORS": unit.coordinator,
            "AFD_DEPLOYMENT": unit.deployment,
            "AFD_MODEL_ID": unit.model.id,
            "AFD_MODEL_PATH": unit.model.path,
            "AFD_CONTEXT_LENGTH": str(unit.model.context_length),
            "AFD_TOKEN_FILE": unit.auth.secret_file or "",
            "AFD_POD_NAME": "gateway",
        },
    )
    return [*workers, coordinator, gateway]


def encoded(unit: UnitFile) -> str:
    return unitfile.encode(unit)
