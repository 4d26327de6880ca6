"""What is read of a pod, and what a running unit's numbers look like in a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.world import OPERATOR, World, rack

from afd_operator.api.load import parse
from afd_operator.lifecycle.observed import pod_from_api
from afd_operator.lifecycle.plan import plan
from afd_unit.report import UnitReport, UnitState

Json = dict[str, Any]


def body(**status: Any) -> Json:
    return {
        "metadata": {
            "name": "demo-0-exp-1",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "afd.dev/role": "expert", "afd.dev/unit": "0", "afd.dev/index": "1",
                "afd.dev/deployment-uid": "o",
            },
            "annotations": {"afd.dev/revision": "r", "afd.dev/domain": "d"},
        },
        "spec": {"schedulingGates": [{"name": "other/gate"}, {"name": "afd.dev/placement"}]},
        "status": {"phase": "Pending", **status},
    }  # fmt: skip


def container(**facts: Any) -> Json:
    return {"name": "gpu-0", "ready": False, "restartCount": 0, **facts}


UNSCHEDULABLE = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


def waits(reason: str, **more: str) -> Json:
    return {"containerStatuses": [container(state={"waiting": {"reason": reason, **more}})]}


def died(code: int, reason: str, **facts: Any) -> Json:
    last = {"terminated": {"exitCode": code, "reason": reason}}
    return {"containerStatuses": [container(lastState=last, **facts)]}


GATED = {**UNSCHEDULABLE, "reason": "SchedulingGated"}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}

TROUBLES = [
    ("none while it starts", waits("ContainerCreating"), None),
    ("not schedulable", {"conditions": [UNSCHEDULABLE]}, "not schedulable: 0/4 nodes"),
    ("gated is none", {"conditions": [GATED]}, None),
    ("no image", waits("ErrImagePull", message="no such image"), "gpu-0: ErrImagePull no such image"),
    ("it died", died(137, "OOMKilled"), "gpu-0: last ended with code 137 (OOMKilled)"),
    ("it died long ago and is ready", died(1, "Error", ready=True), None),
    ("evicted", EVICTED, "failed: Evicted low on memory"),
]


@pytest.mark.parametrize(("status", "trouble"), [t[1:] for t in TROUBLES], ids=[t[0] for t in TROUBLES])
def test_trouble(status: Json, trouble: str | None) -> None:
    state = pod_from_api(body(**status))
    assert state is not None
    assert state.trouble == trouble


def test_a_pod_is_known_by_its_labels_and_gated_by_our_gate_only() -> None:
    state = pod_from_api(body())
    assert state is not None
    assert (state.owner_uid, state.role, state.unit, state.index) == ("o", "expert", 0, 1)
    assert (state.revision, state.domain, state.gated) == ("r", "d", True)
    other = body()
    other["spec"]["schedulingGates"] = [{"name": "other/gate"}]
    state = pod_from_api(other)
    assert state is not None
    assert not state.gated


@pytest.mark.parametrize(
    "labels", [{}, {"afd.dev/role": "expert"}, {"afd.dev/role": "king", "afd.dev/deployment-uid": "o"}]
)
def test_a_pod_without_our_labels_is_not_ours(labels: Json) -> None:
    foreign = body()
    foreign["metadata"]["labels"] = labels
    assert pod_from_api(foreign) is None


def report(slack: float | None, step_s: float | None, tokens: float | None, unit: int = 0) -> UnitReport:
    return UnitReport(
        deployment="prod/demo", unit=unit, state=UnitState.SERVING, epoch=3, committed_step=9, workers=[],
        step_time_s=step_s, ffn_slack_ratio=slack, tokens_per_second=tokens,
    )  # fmt: skip


def status(*reports: UnitReport) -> Json:
    world = World(rack(a=2, b=2))
    world.create("demo", units=2)
    world.settle()
    observed = replace(world.look("demo"), reports={r.unit: r for r in reports})
    found: Json = plan(
        parse(world.deployments["demo"]), observed, world.now, status_reader=OPERATOR
    ).status.dump()
    return found


def hidden(found: Json) -> tuple[str, str]:
    (condition,) = (c for c in found["conditions"] if c["type"] == "FFNHidden")
    return condition["status"], condition["reason"]


def test_numbers_are_those_of_the_slowest_unit_rounded() -> None:
    found = status(report(0.1234, 0.012345, 1049.0), report(0.31, 0.0341, 551.0, unit=1))
    assert found["observed"] == {"stepTime": "34ms", "ffnSlack": "12%", "tokensPerSecond": 1600}
    assert found["unitStatuses"][0]["stepTime"] == "12ms"
    assert found["unitStatuses"][0]["epoch"] == 3
    assert hidden(found) == ("True", "Hidden")


def test_a_small_change_of_what_is_measured_changes_no_status() -> None:
    assert status(report(0.121, 0.0341, 1610.0)) == status(report(0.124, 0.0342, 1590.0))


def test_an_exposed_ffn_is_a_condition() -> None:
    assert hidden(status(report(-0.2, 0.03, 10.0))) == ("False", "Exposed")


def test_without_a_measurement_nothing_is_claimed() -> None:
    found = status(report(None, None, None))
    assert "observed" not in found
    assert hidden(found) == ("Unknown", "NotMeasured")
