"""A GPU, its node and its NVLink domain, as far as the planner needs them.

Figures are per GPU, dense, one direction. A figure that nobody has established is `null` in
`data/hardware.json` and stays None here: the question that needs it is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from afd_operator.planner.errors import InvalidHardware


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One system; raises InvalidHardware for figures that no machine has."""

    name: str
    title: str
    hbm_bytes: float
    hbm_bytes_per_s: float
    gpus_per_node: int
    nodes_per_domain: int
    fp8_flops: float | None = None
    bf16_flops: float | None = None
    link_bytes_per_s: float | None = None
    sms: int | None = None
    boundary_sms: int | None = None
    profile: str | None = None
    profile_link_bytes_per_s: float | None = None
    """Link of the system that the profile was timed on, where it is not this one's."""
    source: str = ""
    conflict: str | None = None

    def __post_init__(self) -> None:
        for field in ("hbm_bytes", "hbm_bytes_per_s", "gpus_per_node", "nodes_per_domain"):
            if not getattr(self, field) > 0:
                raise InvalidHardware(f"{self.name}: {field} is {getattr(self, field)}, it must be positive")
        for field in ("fp8_flops", "bf16_flops", "link_bytes_per_s", "sms"):
            value = getattr(self, field)
            if value is not None and not value > 0:
                raise InvalidHardware(f"{self.name}: {field} is {value}; leave it out if it is not known")

    @property
    def gpus_per_domain(self) -> int:
        return self.gpus_per_node * self.nodes_per_domain

    def required(self, field: str) -> float:
        """The figure `field`, or InvalidHardware if it is not established for this system."""
        value = getattr(self, field)
        if value is None:
            raise InvalidHardware(
                f"{self.title}: {field} is not established, and this question needs it ({self.source})"
            )
        return float(value)


@cache
def _records() -> dict[str, Any]:
    text = (files("afd_operator.planner") / "data" / "hardware.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["systems"])


def names() -> list[str]:
    """Every system known by name."""
    return sorted(_records())


def hardware(name: str) -> Hardware:
    """The system `name`; raises InvalidHardware for an unknown one."""
    record = _records().get(name.lower())
    if record is None:
        raise InvalidHardware(f"hardware {name!r} is not known; known are {', '.join(names())}")
    return Hardware(name=name.lower(), **record)
