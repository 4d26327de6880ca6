"""What a run looks like to the kernel: how many rows each expert has, where they lie, which tiles follow.

rows of a slot      expert 0        expert 1 (none)   expert 2            room
                 [ 40 rows | 24 pad ]               [ 5 rows | 27 pad ] ...
                 ^ first = 0                        ^ first = 64: a multiple of ROW_ALIGN

A *unit* is one output tile of a run: 256 weight rows (128 of gate and 128 of up, or 256 of down) against at most
128 token rows. A run's units are numbered gate-up first, expert by expert; `csrc/claim.cuh` does the same sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

BLOCK_K = 128
"""One scale of activations (1 x 128) and of weights (128 x 128) per this many columns: the FP8 checkpoints' format."""
WIDE_TOKENS = 128
NARROW_TOKENS = 32
WEIGHT_ROWS = 256
ROW_ALIGN = 32
MAX_EXPERTS = 256
MAX_K = 8192
MAX_ROWS = 65535
"""Rows of one expert in one run: 16 bits of the extent word."""


class ShapeError(ValueError):
    """The kernel cannot run this; the message says which number is wrong and what would be right."""


class Queue(IntEnum):
    DECODE = 0
    PREFILL = 1


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


@dataclass(frozen=True)
class ExpertShape:
    """The experts of one GPU: `experts` of them, each [2 * intermediate, hidden] and [hidden, intermediate]."""

    experts: int
    hidden: int
    intermediate: int

    def __post_init__(self) -> None:
        if not 1 <= self.experts <= MAX_EXPERTS:
            raise ShapeError(f"{self.experts} experts on one GPU: 1 to {MAX_EXPERTS} are possible")
        if self.hidden % WEIGHT_ROWS or not WEIGHT_ROWS <= self.hidden <= MAX_K:
            raise ShapeError(f"hidden size {self.hidden} is not a multiple of {WEIGHT_ROWS} up to {MAX_K}")
        if self.intermediate % BLOCK_K or not BLOCK_K <= self.intermediate <= MAX_K:
            raise ShapeError(
                f"intermediate size {self.intermediate} is not a multiple of {BLOCK_K} up to {MAX_K}"
            )

    @property
    def gate_up_tiles(self) -> int:
        """Weight tiles of the first operation."""
        return self.intermediate // BLOCK_K

    @property
    def down_tiles(self) -> int:
        return self.hidden // WEIGHT_ROWS

    def units(self, queue: Queue, counts: Sequence[int]) -> int:
        """Units of a run that brings `counts[e]` rows to expert e."""
        return sum(token_tiles(queue, rows) for rows in counts) * (self.gate_up_tiles + self.down_tiles)


def token_tiles(queue: Queue, rows: int) -> int:
    """Tiles along the rows of one expert. Decode rows up to `NARROW_TOKENS` take one narrow tile."""
    if queue is Queue.DECODE and rows <= NARROW_TOKENS:
        return min(rows, 1)
    return ceil_div(rows, WIDE_TOKENS)


@dataclass(frozen=True)
class Extent:
    """Where the rows of one expert lie in a slot."""

    first: int
    rows: int

    @property
    def word(self) -> int:
        """{first / ROW_ALIGN : 16 | rows : 16}, as the kernel reads it."""
        return self.first // ROW_ALIGN << 16 | self.rows


def pack(counts: Sequence[int]) -> tuple[Extent, ...]:
    """Extents that follow one another, each at the next multiple of `ROW_ALIGN`."""
    extents, first = [], 0
    for rows in counts:
        extents.append(Extent(first, rows))
        first += ceil_div(rows, ROW_ALIGN) * ROW_ALIGN
    return tuple(extents)


def check_extents(extents: Sequence[Extent], shape: ExpertShape, capacity_rows: int) -> None:
    """Raises ShapeError unless there is one extent for each expert, all within `capacity_rows`, aligned, apart."""
    if len(extents) != shape.experts:
        raise ShapeError(f"{len(extents)} extents for {shape.experts} experts")
    end = 0
    for expert, extent in sorted(enumerate(extents), key=lambda pair: (pair[1].first, pair[1].rows)):
        if not 0 <= extent.rows <= MAX_ROWS:
            raise ShapeError(f"expert {expert}: {extent.rows} rows, 0 to {MAX_ROWS} are possible")
        if not extent.rows:
            continue
        if extent.first % ROW_ALIGN:
            raise ShapeError(f"expert {expert}: first row {extent.first} is not a multiple of {ROW_ALIGN}")
        if extent.first < end:
            raise ShapeError(
                f"expert {expert}: first row {extent.first} lies in another's rows, which end at {end}"
            )
        end = extent.first + ceil_div(extent.rows, ROW_ALIGN) * ROW_ALIGN
        if end > capacity_rows:
            raise ShapeError(f"expert {expert}: rows up to {end}, the slot has {capacity_rows}")
