"""Which processes a local unit has, and what they are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afd_runtime.local import layout
from afd_runtime.local.layout import MOST_CONTEXT_TOKENS, LocalError, Ports, Wanted
from afd_runtime.local.main import arguments
from afd_unit import unitfile

WANTED = Wanted(
    model=Path("/models/qwen"),
    model_id="qwen",
    attention=2,
    expert=1,
    microbatches=2,
    context_length=100,
    host="127.0.0.1",
    port=8000,
)
PORTS = Ports(control=1000, coordinator_http=1001)


def test_one_process_a_place() -> None:
    unit = layout.unit_file(WANTED, PORTS, Path("/tmp/secret"))
    made = layout.processes(unit, WANTED, PORTS, Path("/tmp/unit.json"), cores=8)
    assert [process.name for process in made] == [
        *("expert-0", "attention-0", "attention-1"),
        *("coordinator", "gateway"),
    ]
    lane = made[2]
    assert lane.arguments == ("worker", "attention")
    assert (lane.environment["AFD_POD_INDEX"], lane.environment["AFD_THREADS"]) == ("1", "2")
    assert made[-1].environment["AFD_COORDINATORS"] == "127.0.0.1:1000"


def test_the_unit_file_is_one_that_processes_read() -> None:
    unit = layout.unit_file(WANTED, PORTS, Path("/tmp/secret"))
    assert unitfile.decode(layout.encoded(unit)) == unit


def test_more_workers_than_cores_still_have_a_thread_each() -> None:
    unit = layout.unit_file(WANTED, PORTS, Path("/tmp/secret"))
    made = layout.processes(unit, WANTED, PORTS, Path("/tmp/unit.json"), cores=1)
    assert made[0].environment["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("config", "asked", "length"),
    [
        ({"max_position_embeddings": 512}, None, 512),
        ({"max_position_embeddings": 512}, 100, 100),
        ({"max_position_embeddings": 1 << 20}, None, MOST_CONTEXT_TOKENS),
        ({"max_position_embeddings": 1 << 20}, 1 << 15, 1 << 15),
        ({}, None, MOST_CONTEXT_TOKENS),
    ],
)
def test_the_context_is_the_models_or_what_is_asked(
    tmp_path: Path, config: dict[str, int], asked: int | None, length: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert layout.context_length(tmp_path, asked) == length


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_is_no_model_is_said_at_once(tmp_path: Path, missing: str) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    layout.check(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(LocalError, match=Path(missing).suffix):
        layout.check(tmp_path)


@pytest.mark.parametrize(
    ("config", "asked", "says"),
    [
        ("{", None, "config.json"),
        ("[]", None, "config.json"),
        ('{"max_position_embeddings": 512}', 513, "at most 512"),
    ],
)
def test_a_config_that_does_not_go_is_said(tmp_path: Path, config: str, asked: int | None, says: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(LocalError, match=says):
        layout.context_length(tmp_path, asked)


@pytest.mark.parametrize(
    "line", [["model"], ["model", "--local", "--attention", "0"], ["model", "--local", "--microbatches", "5"]]
)
def test_lines_that_make_no_sense(line: list[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(line)
