"""A number that says where it comes from.

    Figure(33.6, "ms", Kind.MODEL, "r T_fmha + m T_dense", low=32.1, high=35.1)

`low` and `high` bound the value at `COVERAGE` when a fit stands behind it. A figure without a bound is
read off a table or follows by arithmetic from exact inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

COVERAGE = 0.90
Z = 1.645
"""Two-sided 90 % quantile of the normal distribution, for intervals from residuals."""


class Kind(StrEnum):
    MEASURED = "measured"
    """Read off a table of timings, or interpolated between two of its rows."""
    PUBLISHED = "published"
    """Stated by a paper, an article or a vendor."""
    MODEL = "model"
    """Computed: from a fit outside its table, a formula, or several of the above."""


@dataclass(frozen=True)
class Figure:
    """`value` in `unit`; raises ValueError if it is not a finite number or lies outside its bounds."""

    value: float
    unit: str
    kind: Kind
    source: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"{self.value} {self.unit} from {self.source} is not a number")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(f"{self.value} {self.unit} lies outside {self.low} .. {self.high}")

    @classmethod
    def spread(cls, value: float, unit: str, kind: Kind, source: str, *, sigma: float) -> Figure:
        """A figure whose relative error has the standard deviation `sigma`."""
        return cls(
            value, unit, kind, source, low=value * math.exp(-Z * sigma), high=value * math.exp(Z * sigma)
        )

    def __str__(self) -> str:
        bounds = "" if self.low is None or self.high is None else f" ({self.low:.4g} .. {self.high:.4g})"
        return f"{self.value:.4g} {self.unit}{bounds} [{self.kind}: {self.source}]"

    def as_dict(self) -> dict[str, object]:
        out: dict[str, object] = {
            "value": round(self.value, 6),
            "unit": self.unit,
            "kind": str(self.kind),
            "source": self.source,
        }
        if self.low is not None and self.high is not None:
            out["interval"] = {"low": round(self.low, 6), "high": round(self.high, 6), "coverage": COVERAGE}
        return out
