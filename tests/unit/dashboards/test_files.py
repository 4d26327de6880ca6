"""What is committed is what the spec makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from afd_cli.main import main
from afd_dashboards import pages

ROOT = Path(__file__).parents[3]


def test_committed_files_are_up_to_date() -> None:
    assert pages.stale(pages.repository_files(), ROOT) == [], "run: afd dashboards"


def test_the_same_spec_gives_the_same_text() -> None:
    assert pages.repository_files() == pages.repository_files()


def test_the_command_writes_what_is_stale_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = tmp_path / "afd-unit.json"
    for expected_code, arguments, said in (
        (1, ["--check"], f"stale {board}\n"),
        (0, [], f"wrote {board}\n"),
        (0, [], ""),
        (0, ["--check"], ""),
    ):
        assert main(["dashboards", "--out", str(tmp_path), *arguments]) == expected_code
        assert capsys.readouterr().out == said


def test_outside_the_repository_the_command_asks_for_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dashboards"]) == 2
    assert "--out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_metrics_page_lists_every_metric() -> None:
    from afd_unit import metrics

    page = pages.repository_files()[Path("docs/metrics.md")]
    assert [
        m.name for m in metrics.ALL if f"`{m.name}`" not in page and f"`{m.name}_total`" not in page
    ] == []
