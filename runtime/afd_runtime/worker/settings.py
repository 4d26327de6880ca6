"""What a worker is told: the unit file, its place by environment, and how much it may use.

AFD_UNIT_FILE, AFD_POD_INDEX, AFD_DEVICE, AFD_POD_IP, AFD_TOKEN_FILE      see `afd_unit.unitfile`
AFD_DTYPE            float32     computation, KV cache and wire: float32 | bfloat16 | float16
AFD_THREADS          1           torch threads; several workers share a machine
AFD_MAX_ROWS         512         rows of the largest microbatch; the same for the whole unit
AFD_KV_BYTES         1073741824  memory for keys and values of a lane
AFD_PAGE_TOKENS      16          tokens of a KV page
AFD_TABLE_SLOTS      64          most requests resident on a lane
AFD_ROUND_TIMEOUT_S  30          how long a lane waits for a combine
AFD_HTTP_PORT        by device   port of /health, /ready, /metrics; 0 takes a free one
AFD_DATA_PORT        by device   port where an expert worker's lanes connect; 0 takes a free one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from afd_runtime.auth import shown
from afd_unit import ports, unitfile
from afd_unit.identity import Member, Role, member_index
from afd_unit.unitfile import UnitFile

DTYPES = ("float32", "bfloat16", "float16")


class SettingsError(ValueError):
    """A setting is missing or out of range; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    unit: UnitFile
    member: Member
    host: str
    """Address under which the other pods reach this one."""
    http_port: int
    data_port: int
    credential_file: str
    dtype: str
    threads: int
    max_rows: int
    kv_bytes: int
    page_tokens: int
    table_slots: int
    round_timeout_s: float


def read(role: Role, environ: Mapping[str, str]) -> Settings:
    """Raises SettingsError, UnitFileError or NoCredentialError, each naming what is wrong."""
    unit = unitfile.read(_required(environ, "AFD_UNIT_FILE"))
    device = _count(environ, "AFD_DEVICE", 0, least=0)
    dtype = environ.get("AFD_DTYPE", "float32")
    if dtype not in DTYPES:
        raise SettingsError(f"AFD_DTYPE is {dtype!r}, one of {', '.join(DTYPES)} is needed")
    return Settings(
        unit=unit,
        member=_member(role, unit, environ, device),
        host=environ.get("AFD_POD_IP") or "127.0.0.1",
        http_port=_count(environ, "AFD_HTTP_PORT", ports.worker_http(device), least=0),
        data_port=_count(environ, "AFD_DATA_PORT", ports.expert_data(device), least=0),
        credential_file=shown.path(environ, unit.auth.secret_file),
        dtype=dtype,
        threads=_count(environ, "AFD_THREADS", 1),
        max_rows=_count(environ, "AFD_MAX_ROWS", 512),
        kv_bytes=_count(environ, "AFD_KV_BYTES", 1 << 30),
        page_tokens=_count(environ, "AFD_PAGE_TOKENS", 16),
        table_slots=_count(environ, "AFD_TABLE_SLOTS", 64),
        round_timeout_s=float(_count(environ, "AFD_ROUND_TIMEOUT_S", 30)),
    )


def _member(role: Role, unit: UnitFile, environ: Mapping[str, str], device: int) -> Member:
    pod = _count(environ, "AFD_POD_INDEX", 0, least=0)
    try:
        index = member_index(pod, device, unit.gpus_per_node)
    except ValueError as error:
        raise SettingsError(f"AFD_DEVICE: {error}") from error
    places = unit.attention_workers if role is Role.ATTENTION else unit.expert_workers
    if index >= places:
        raise SettingsError(
            f"AFD_POD_INDEX {pod} and AFD_DEVICE {device} make {role} worker {index}, the unit has {places}"
        )
    return Member(unit.unit, role, index)


def _required(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise SettingsError(f"{name} is not set")
    return environ[name]


def _count(environ: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = environ.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise SettingsError(f"{name} is {text!r}, a whole number of at least {least} is needed")
    return int(text)
