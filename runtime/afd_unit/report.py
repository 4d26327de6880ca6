"""The unit report: what a coordinator answers at `/status`, and all that the operator knows of a
running unit. JSON, camelCase, unknown fields ignored (an operator may be older than a runtime)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from afd_unit.identity import Role


class UnitState(StrEnum):
    """What a unit is doing. `FORMING -> SERVING <-> PAUSED`; a lost lane alone does not pause."""

    FORMING = "forming"
    """Not all needed members have registered yet: no step has run in this epoch."""
    SERVING = "serving"
    PAUSED = "paused"
    """Steps wait for a member (an expert worker lost); requests are held."""


class _Base(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class WorkerReport(_Base, frozen=True, kw_only=True):
    """One place of the unit, filled or not."""

    role: Role
    index: int
    ready: bool
    requests_running: int = 0
    kv_usage_ratio: float = 0.0


class UnitReport(_Base, frozen=True, kw_only=True):
    """How a unit fares. Times in seconds; `None` where nothing was measured yet."""

    deployment: str
    unit: int
    state: UnitState
    epoch: int
    committed_step: int
    workers: list[WorkerReport]
    requests_running: int = 0
    requests_waiting: int = 0
    step_time_s: float | None = None
    ffn_slack_ratio: float | None = None
    tokens_per_second: float | None = None
    waiting_for: str | None = None
    """In words: what FORMING or PAUSED waits for."""


def encode(report: UnitReport) -> bytes:
    return msgspec.json.encode(report)


def decode(data: bytes) -> UnitReport:
    """Raises msgspec.DecodeError (or its subclass ValidationError) on anything else."""
    return msgspec.json.decode(data, type=UnitReport)
