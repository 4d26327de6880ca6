"""Whatever a user sets that this version does not act on is named, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.api.specs import FULL, MINIMAL, WORKLOAD, patched, worker

from afd_operator.api.load import parse
from afd_operator.api.unsupported import not_acted_on


def findings(patch: dict[str, Any]) -> list[str]:
    return [finding.field for finding in not_acted_on(parse(patched(patch)).spec)]


CASES: list[tuple[str, dict[str, Any]]] = [
    ("spec.model.source", {"model": {"source": "hf://a/b"}}),
    ("spec.model.kvCacheDtype", {"model": {"kvCacheDtype": "fp8"}}),
    ("spec.ratio.prefill", {"ratio": {"attention": 2, "expert": 1, "prefill": 1}}),
    ("spec.smBudget", {"smBudget": {"boundary": 24, "decode": 48}}),
    ("spec.slo", {"slo": {"ttft": "2s"}}),
    ("spec.workload", {"workload": WORKLOAD}),
    ("spec.placement.sharing", {"placement": {"sharing": "Shared"}}),
    ("spec.placement.fabric", {"placement": {"fabric": "ComputeDomain"}}),
    ("spec.placement.scheduler.backend", {"placement": {"scheduler": {"backend": "PodGroup"}}}),
    ("spec.scaling", {"scaling": {"attention": {"min": 1, "max": 4}}}),
    ("spec.failurePolicy.attention", {"failurePolicy": {"attention": "RestartUnit"}}),
    ("spec.failurePolicy.expert", {"failurePolicy": {"expert": "RestartUnit"}}),
    ("spec.failurePolicy.restartBudget", {"failurePolicy": {"restartBudget": {"restarts": 1}}}),
    ("spec.update.strategy", {"update": {"strategy": "BlueGreenDomain"}}),
    ("spec.runtime.backend", {"runtime": {"backend": "sglang"}}),
]


@pytest.mark.parametrize(("field", "patch"), CASES)
def test_a_field_that_changes_nothing_is_named(field: str, patch: dict[str, Any]) -> None:
    assert findings(patch) == [field]


def test_the_planner_is_named_with_its_workload() -> None:
    assert findings({"ratio": {"mode": "Auto"}, "workload": WORKLOAD}) == ["spec.ratio.mode", "spec.workload"]


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"ratio": {"attention": 7, "expert": 2, "prefill": 0}, "microbatches": 4, "units": 3},
        {
            "placement": {
                "topologyKey": "a/b",
                "domainSelector": {"matchLabels": {"a": "b"}},
                "gpusPerNode": 1,
            }
        },
        {"placement": {"spares": 2}, "failurePolicy": {"domain": "Hold"}, "update": {"strategy": "OnDelete"}},
        {"failurePolicy": {"restartBudget": {"window": "60m"}}},
        worker(env=[{"name": "X", "value": "1"}]),
    ],
    ids=["minimal", "shape", "placement", "choices", "a default in other words", "pod template"],
)
def test_what_this_version_acts_on_is_not_named(patch: dict[str, Any]) -> None:
    assert findings(patch) == []


def test_a_unit_is_not_started_as_something_else_than_was_asked_for() -> None:
    blocking = {finding.field for finding in not_acted_on(parse(FULL).spec) if finding.blocks}
    assert blocking == {"spec.runtime.backend"}
    assert not_acted_on(parse(MINIMAL).spec) == []
