"""When a unit must be made anew, and when not; when a child must be applied again, and when not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.resources.samples import deployment

from afd_operator.resources.drift import as_wanted, stamped
from afd_operator.resources.revision import revision

SAME = [
    ("more units", {"units": 9}),
    ("other domains for the next placement", {"placement": {"domainSelector": {"matchLabels": {"a": "b"}}}}),
    ("more spares", {"placement": {"spares": 1}}),
    ("a default written out", {"microbatches": 2, "model": {"contextLength": 8192}}),
    ("more gateways", {"runtime": {"gateway": {"replicas": 3}}}),
    (
        "an addition to gateways",
        {"runtime": {"podTemplate": {"spec": {"containers": [{"name": "gateway", "env": [{"name": "A"}]}]}}}},
    ),
    ("another policy for failures", {"failurePolicy": {"domain": "Hold"}}),
]

OTHER = [
    ("another model", {"model": {"source": "pvc://models/other"}}),
    ("another image", {"runtime": {"image": "registry.example/afd:2"}}),
    ("another ratio", {"ratio": {"attention": 2}}),
    ("more microbatches", {"microbatches": 3}),
    ("another kind of domain", {"placement": {"topologyKey": "rack"}}),
    ("more context", {"model": {"contextLength": 16384}}),
    (
        "an addition to workers",
        {"runtime": {"podTemplate": {"spec": {"containers": [{"name": "worker", "env": [{"name": "A"}]}]}}}},
    ),
]


@pytest.mark.parametrize("change", [c for _, c in SAME], ids=[name for name, _ in SAME])
def test_units_go_on_with(change: dict[str, Any]) -> None:
    assert revision(deployment(**change).spec) == revision(deployment().spec)


@pytest.mark.parametrize("change", [c for _, c in OTHER], ids=[name for name, _ in OTHER])
def test_units_are_made_anew_for(change: dict[str, Any]) -> None:
    assert revision(deployment(**change).spec) != revision(deployment().spec)


def test_the_revision_is_the_same_in_every_process_and_version() -> None:
    """Pinned: if this fails, an upgrade of the operator restarts every unit of a cluster."""
    assert revision(deployment().spec) == "13499a4112"


WANTED = stamped(
    {
        "metadata": {"name": "x"},
        "spec": {
            "ports": [{"port": 80, "name": "http"}],
            "cpu": "1000m",
            "memory": "1Gi",
            "args": ["a", "b"],
            "empty": {},
            "off": False,
            "blank": "",
        },
    }
)


def shown(**changes: Any) -> dict[str, Any]:
    """What an API server shows of WANTED: defaults filled in, amounts canonical, zero values left out."""
    spec = {
        "ports": [{"port": 80, "name": "http", "protocol": "TCP"}],
        "cpu": "1",
        "memory": "1073741824",
        "args": ["a", "b"],
        "clusterIP": "10.0.0.1",
    }
    return {"metadata": WANTED["metadata"] | {"uid": "u"}, "spec": spec | changes, "status": {}}


CASES = [
    ("as applied", shown(), True),
    ("absent", None, False),
    ("a number was changed", shown(cpu="2"), False),
    ("an item was changed", shown(ports=[{"port": 81, "name": "http"}]), False),
    ("an item was removed", shown(ports=[]), False),
    ("others may add to a merged list", shown(ports=[*shown()["spec"]["ports"], {"name": "m"}]), True),
    ("a list that is one value was changed", shown(args=["a", "b", "c"]), False),
    ("a zero value was set", shown(off=True), False),
    ("our manifest has changed since", shown() | {"metadata": {"name": "x"}}, False),
]  # fmt: skip


@pytest.mark.parametrize(("observed", "right"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_child_is_as_wanted(observed: dict[str, Any] | None, right: bool) -> None:
    assert as_wanted(observed, WANTED) is right


def test_a_field_that_left_the_manifest_shows_in_the_fingerprint() -> None:
    less = stamped({"metadata": {"name": "x"}, "spec": {"cpu": "1000m"}})
    assert not as_wanted(shown(), less)
