"""What a board is. Says nothing of Grafana, so that another tool's format is another translation.

    Board > Row > Panel > Query

A panel without a description, a unit or a query cannot be made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GRID_COLUMNS = 24


class Unit(StrEnum):
    """What a panel's numbers are counted in. Values are Grafana's ids, which other tools map from."""

    SECONDS = "s"
    RATIO = "percentunit"
    COUNT = "short"
    REQUESTS_PER_SECOND = "reqps"
    TOKENS_PER_SECOND = "tokens/s"
    ROWS_PER_SECOND = "rows/s"
    EVENTS_PER_SECOND = "events/s"


class Show(StrEnum):
    """How: lines over time, the last value of each series as a number, or only its name."""

    LINES = "lines"
    NUMBERS = "numbers"
    NAMES = "names"


@dataclass(frozen=True, kw_only=True)
class Query:
    promql: str
    legend: str
    """Text with `{{label}}` in it."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """From `value` upwards the panel is drawn in `color`; below the lowest, in the panel's base color."""

    value: float
    color: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    show: Show = Show.LINES
    columns: int = 8
    minimum: float | None = None
    maximum: float | None = None
    base_color: str = "green"
    thresholds: tuple[Threshold, ...] = ()

    def __post_init__(self) -> None:
        if not (self.title and self.description and self.queries):
            raise ValueError(f"panel {self.title!r} needs a title, a description and a query")
        if not 1 <= self.columns <= GRID_COLUMNS:
            raise ValueError(
                f"panel {self.title!r} is {self.columns} columns wide; a board has {GRID_COLUMNS}"
            )


@dataclass(frozen=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice at the top of the board: the values that `label` has on `series`."""

    name: str
    title: str
    series: str
    label: str
    multiple: bool = False


@dataclass(frozen=True, kw_only=True)
class Board:
    uid: str
    title: str
    description: str
    tags: tuple[str, ...]
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)
