"""`afd dashboards`: write the boards, or check that written ones are up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from afd_dashboards import pages


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0; 1 when --check finds stale files; 2 when there is nowhere to write."""
    parser = argparse.ArgumentParser(
        prog="afd dashboards", description="Writes Grafana boards as JSON files."
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for the boards (default: all copies and docs/metrics.md of the repository we are in)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; name what would change")
    options = parser.parse_args(argv)
    folder: Path = options.out or Path()
    if options.out is None and not (folder / "dashboards" / "grafana").is_dir():
        print(
            "afd dashboards: this folder is not the repository; run it there or give --out", file=sys.stderr
        )
        return 2
    files = pages.repository_files() if options.out is None else pages.boards()
    changed = pages.stale(files, folder) if options.check else pages.write(files, folder)
    for path in changed:
        print(f"{'stale' if options.check else 'wrote'} {folder / path}")
    return int(options.check and bool(changed))
