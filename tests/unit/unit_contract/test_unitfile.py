"""The unit file round-trips, and says what is wrong when it does not."""

from __future__ import annotations

import json

import pytest

from afd_unit import unitfile
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile, UnitFileError

GOOD = UnitFile(
    deployment="default/demo",
    unit=0,
    model=Model(id="demo", path="/models/demo", context_length=1024),
    attention_workers=8,
    expert_workers=4,
    gpus_per_node=4,
    microbatches=2,
    coordinator="demo-0-coord.default.svc:7400",
    domain="cluster.0",
    auth=Auth(mode=AuthMode.SERVICE_ACCOUNT, service_account="default/demo"),
)


def test_round_trip_and_stable_text() -> None:
    text = unitfile.encode(GOOD)
    assert unitfile.decode(text) == GOOD
    assert unitfile.encode(unitfile.decode(text)) == text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version 2"),
        ({"attentionWorkers": 0}, "attention_workers is 0"),
        ({"microbatches": 0}, "microbatches is 0"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"model": {"id": "x", "path": "/x"}}, "missing required field `contextLength`"),
        ({"model": {"id": "x", "path": "/x", "contextLength": 0}}, "contextLength is 0"),
        ({"auth": {"mode": "none"}}, "Invalid enum value 'none'"),
    ],
)
def test_refuses(change: dict[str, object], says: str) -> None:
    broken = {**json.loads(unitfile.encode(GOOD)), **change}
    with pytest.raises(UnitFileError, match=says):
        unitfile.decode(json.dumps(broken))


def test_not_json_and_no_file(tmp_path: object) -> None:
    with pytest.raises(UnitFileError, match="not JSON"):
        unitfile.decode("{")
    with pytest.raises(UnitFileError, match="nowhere"):
        unitfile.read("nowhere/unit.json")
