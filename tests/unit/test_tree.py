"""The tree itself: what must never be there."""

from __future__ import annotations

import operator
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", ["operator/__init__.py", "operator/operator.py", "runtime/__init__.py"])
def test_top_level_folders_are_no_packages(path: str) -> None:
    """`operator` is a module of the standard library: a package of that name breaks the interpreter."""
    assert not (ROOT / path).exists()
    assert operator.add(1, 2) == 3


@pytest.mark.parametrize(
    ("entry", "banned"),
    [
        ("afd_runtime.coordinator.main", "torch"),
        ("afd_runtime.server.main", "torch"),
        ("afd_operator.controller.main", "torch"),
        ("afd_cli.main", "kopf"),
        ("afd_cli.main", "torch"),
    ],
)
def test_what_a_process_does_not_load(entry: str, banned: str) -> None:
    """Import-linter sees what we import; this sees what our imports import."""
    code = f"import sys, {entry}; sys.exit({banned!r} in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": "operator:runtime", "PATH": "/usr/bin"},
        check=False,
    )
    assert result.returncode == 0, f"importing {entry} loads {banned}"
