"""The command `afd`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from afd_cli.commands import COMMANDS
from afd_cli.main import find, main

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command.words) for command in COMMANDS])
def test_every_command_exists(command: object) -> None:
    assert importlib.util.find_spec(command.module) is not None  # type: ignore[attr-defined]


def test_a_line_names_a_command_and_its_options() -> None:
    found = find(["worker", "gateway", "--port", "1"])
    assert found is not None
    assert (found[0].module, found[1]) == ("afd_runtime.server.main", ["--port", "1"])
    assert find(["worker"]) is None


def test_help_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(" ".join(command.words) in told for command in COMMANDS)


@pytest.mark.parametrize("line", [[], ["nothing"], ["worker", "nobody"]])
def test_what_is_no_command_is_told_so(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert "usage: afd" in capsys.readouterr().err


def test_a_missing_package_is_named_with_the_extra_that_has_it() -> None:
    """As after `pip install afd` alone: no aiohttp, no torch."""
    code = (
        "import sys; sys.modules['aiohttp'] = None; sys.modules['zmq'] = None;"
        "from afd_cli.main import main; sys.exit(main(['worker', 'gateway']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{ROOT}/operator:{ROOT}/runtime"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "afd[server]" in result.stderr


def test_the_crd_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"]) == 0
    assert "kind: CustomResourceDefinition" in capsys.readouterr().out
