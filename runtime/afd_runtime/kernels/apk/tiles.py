"""Run-time tile parameters by shape, from the committed table that `afd kernels tune` writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from afd_runtime.kernels.apk.shape import MAX_K, ExpertShape, ShapeError

TABLE = Path(__file__).parent / "tiles.json"


@dataclass(frozen=True)
class Tiles:
    chunk_blocks: int = 8
    """K-blocks of a prefill tile between two looks at the decode queue (one takes about 0.6 us on an H200)."""
    group_tiles: int = 16
    """Token tiles that share a weight tile before the next weight tile is taken up."""

    def __post_init__(self) -> None:
        if not 1 <= self.chunk_blocks <= MAX_K // 128:
            raise ShapeError(f"chunk of {self.chunk_blocks} K-blocks: 1 to {MAX_K // 128} are possible")
        if self.group_tiles < 1:
            raise ShapeError(f"group of {self.group_tiles} token tiles: at least 1")


def tiles_for(shape: ExpertShape, table: Path = TABLE) -> Tiles:
    """The tuned parameters of (hidden, intermediate), or the defaults for a shape nobody has tuned."""
    tuned = json.loads(table.read_text())
    row = tuned.get(f"{shape.hidden}x{shape.intermediate}")
    return Tiles(**row) if row else Tiles()
