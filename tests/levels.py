"""Runs the test levels in order and prints how long each took: what `make test` calls.

    lint      ruff, mypy, import-linter                             seconds
    unit      pure functions, protocol, models against transformers a few minutes
    local     real processes of a unit on this machine, no root
    binaries  the control plane from its Go modules                 ~20 minutes once, then seconds
    cluster   real API server and scheduler, hollow nodes           needs root
    e2e       real kubelets and containers, the demo                needs root

Without root the last levels report themselves as skipped and say why; with CI=true that is a
failure. Name levels as arguments to run only those.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Level:
    name: str
    commands: tuple[tuple[str, ...], ...]


def _pytest(*args: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-q", *args)


LEVELS = (
    Level(
        "lint",
        (
            (str(BIN / "ruff"), "check", "."),
            (str(BIN / "ruff"), "format", "--check", "."),
            (str(BIN / "mypy"),),
            (str(BIN / "lint-imports"),),
        ),
    ),
    Level("unit", (_pytest("tests/unit"),)),
    Level("local", (_pytest("tests/local"),)),
    Level("binaries", ((sys.executable, "-m", "tests.rack.binaries"),)),
    Level("cluster", (_pytest("tests/cluster"),)),
    Level("e2e", (_pytest("tests/e2e"),)),
)


def _run(level: Level) -> bool:
    return all(subprocess.run(command, cwd=ROOT, check=False).returncode == 0 for command in level.commands)


def main(names: list[str]) -> int:
    """Returns 0 when every level passed, 1 when one failed, 2 for an unknown name."""
    unknown = set(names) - {level.name for level in LEVELS}
    if unknown:
        print(f"no such level: {', '.join(sorted(unknown))}; there are {', '.join(lv.name for lv in LEVELS)}")
        return 2
    rows: list[tuple[str, str, float]] = []
    for level in LEVELS:
        if names and level.name not in names:
            continue
        print(f"\n=== {level.name} ===", flush=True)
        start = time.monotonic()
        passed = _run(level)
        rows.append((level.name, "passed" if passed else "FAILED", time.monotonic() - start))
    print("\nlevel      result    seconds")
    for name, result, seconds in rows:
        print(f"{name:<10} {result:<8} {seconds:8.1f}")
    print(f"{'total':<19} {sum(row[2] for row in rows):8.1f}")
    return 0 if all(row[1] == "passed" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
