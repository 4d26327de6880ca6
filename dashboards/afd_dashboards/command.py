"""`afd dashboards`: write the boards, or check that written ones are up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0; 1 when --check finds stale files; 2 when the generator's library is missing."""
    parser = argparse.ArgumentParser(
        prog="afd dashboards", description="Writes Grafana boards as JSON files."
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="write the boards' files here (default: dashboards/grafana and docs/metrics.md of the "
        "repository that is the current folder)",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; name the files that would change"
    )
    options = parser.parse_args(argv)
    try:
        from afd_dashboards import pages
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("grafana_foundation_sdk"):
            raise
        print("afd dashboards needs grafana-foundation-sdk: pip install 'afd[dev]'", file=sys.stderr)
        return 2
    files = pages.boards() if options.out else pages.repository_files()
    folder: Path = options.out or Path()
    if not options.out and not (folder / "dashboards").is_dir():
        print(
            "there is no folder dashboards/ here: run this in the repository, or give --out", file=sys.stderr
        )
        return 2
    changed = pages.stale(files, folder) if options.check else pages.write(files, folder)
    for path in changed:
        print(f"{'stale' if options.check else 'wrote'} {folder / path}")
    return int(options.check and bool(changed))
