"""The files made from code: what each is called and what is in it."""

from __future__ import annotations

from pathlib import Path

from afd_dashboards import grafana
from afd_dashboards.reference import metrics_page
from afd_dashboards.spec import Board
from afd_dashboards.unit import UNIT_BOARD

BOARDS: tuple[Board, ...] = (UNIT_BOARD,)
COPIES = (Path("dashboards/grafana"), Path("charts/afd-operator/files/dashboards"))
"""Folders that hold the boards: for people who import them, and for the chart, since Helm reads no file
outside the chart's own folder."""


def boards() -> dict[Path, str]:
    """Grafana's files by name, for any folder: a chart that carries the boards takes these."""
    return {Path(f"{board.uid}.json"): grafana.to_json(board) for board in BOARDS}


def repository_files() -> dict[Path, str]:
    """All that is committed, by path from the root of the repository."""
    files = {folder / name: text for folder in COPIES for name, text in boards().items()}
    return {**files, Path("docs/metrics.md"): metrics_page()}


def stale(files: dict[Path, str], folder: Path) -> list[Path]:
    """Those that are missing in `folder` or differ there."""
    return [path for path, text in files.items() if not _same(folder / path, text)]


def write(files: dict[Path, str], folder: Path) -> list[Path]:
    """Writes what is stale and returns it."""
    written = stale(files, folder)
    for path in written:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(files[path], encoding="utf-8")
    return written


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
