"""The CRD at a real API server: refused specs name the field, defaults are filled in, kubectl behaves.

The table of specs is the one of tests/unit/api, where `parse` judges it a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.published import await_api
from tests.rack import CommandError, Rack
from tests.unit.api.specs import BAD, FULL, GOOD, MINIMAL, Bad, Good, patched, template

from afd_operator.api import crd
from afd_operator.api.load import parse

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def api(rack: Rack) -> Iterator[Rack]:
    """The rack with the CRD, put in and taken out again unless it is there already."""
    found = rack.kubectl("get", "crd", crd.NAME, "--ignore-not-found", "-o", "name")
    if not found:
        rack.kubectl("apply", "--server-side", "-f", "-", stdin=crd.render())
    rack.kubectl("wait", "--for=condition=Established", f"crd/{crd.NAME}", "--timeout=30s")
    await_api(rack)
    yield rack
    if not found:
        rack.kubectl("delete", "crd", crd.NAME, "--timeout=60s")


def create(api: Rack, namespace: str, obj: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The object as the API server stores it; CommandError with its words if it refuses."""
    out = api.kubectl("create", "-n", namespace, "-f", "-", "-o", "json", *flags, stdin=yaml.safe_dump(obj))
    stored: dict[str, Any] = json.loads(out)
    return stored


def test_the_crd_is_established_and_structural(api: Rack) -> None:
    conditions = json.loads(api.kubectl("get", "crd", crd.NAME, "-o", "json"))["status"]["conditions"]
    states = {condition["type"]: condition["status"] for condition in conditions}
    assert states == {"NamesAccepted": "True", "Established": "True"}, conditions


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case.field}: {case.name}")
def test_a_bad_spec_is_refused_by_the_api_server_naming_the_field(api: Rack, case: Bad) -> None:
    with pytest.raises(CommandError) as refused:
        create(api, "default", patched(case.patch), "--dry-run=server")
    blamed = [line for line in refused.value.stderr.splitlines() if f"{case.field}: " in line]
    assert any(case.says in line for line in blamed), refused.value.stderr


@pytest.mark.parametrize(
    "case", [*GOOD, Good("minimal", {}), Good("every field", FULL["spec"])], ids=lambda case: case.name
)
def test_a_good_spec_is_stored_as_the_models_read_it(api: Rack, case: Good) -> None:
    """The API server's defaults and those of the models are the same."""
    written = patched(case.patch)
    stored = create(api, "default", written, "--dry-run=server")
    assert parse(stored).spec == parse(written).spec


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        (template(hostNetwork=True), "spec.runtime.podTemplate.spec.hostNetwork"),
        (template(securityContext={"runAsUser": 0}), "spec.runtime.podTemplate.spec.securityContext"),
        ({"replicas": 2}, "spec.replicas"),
        ({"ratio": {"attention": 1, "expert": 1, "experts": 2}}, "spec.ratio.experts"),
    ],
)
def test_a_field_that_does_not_exist_is_refused(api: Rack, patch: dict[str, Any], field: str) -> None:
    """What would break a unit has no field; kubectl asks for strict decoding, so typos are errors too."""
    with pytest.raises(CommandError, match=f'unknown field "{field}"'):
        create(api, "default", patched(patch), "--dry-run=server")


def test_a_stored_object_is_as_short_as_it_was_written(api: Rack, namespace: str) -> None:
    spec = create(api, namespace, MINIMAL)["spec"]
    assert spec["runtime"]["podTemplate"] == {"spec": {"terminationGracePeriodSeconds": 30}}
    assert spec["ratio"] == {"mode": "Fixed", "attention": 1, "expert": 1}


def test_an_update_is_judged_as_well(api: Rack, namespace: str) -> None:
    create(api, namespace, MINIMAL)
    with pytest.raises(CommandError, match=r"spec\.ratio\.prefill: .*must be less than ratio\.attention"):
        api.kubectl(
            "patch", "afd", "demo", "-n", namespace, "--type=merge", "-p", '{"spec":{"ratio":{"prefill":1}}}'
        )


def status(api: Rack, namespace: str, **fields: Any) -> None:
    patch = json.dumps({"status": fields})
    api.kubectl("patch", "afd", "demo", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


def test_get_prints_the_columns(api: Rack, namespace: str) -> None:
    create(api, namespace, MINIMAL)
    status(
        api,
        namespace,
        ready="1/1",
        plan={"ratio": "7:1", "attention": 7, "expert": 1, "gpus": 32, "microbatches": 2},
        domain="a.7",
        observed={"stepTime": "12.4ms", "ffnSlack": "11%"},
        conditions=[
            {
                "type": "Ready",
                "status": "True",
                "reason": "AllUnitsServe",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    )
    heads, row = api.kubectl("get", "afd", "-n", namespace).splitlines()
    assert heads.split() == ["NAME", "READY", "RATIO", "DOMAIN", "STEP", "SLACK", "AGE"]
    assert row.split()[:6] == ["demo", "1/1", "7:1", "a.7", "12.4ms", "11%"]
    wide = api.kubectl("get", "afd", "-n", namespace, "-o", "wide")
    assert {"afd/demo", "AllUnitsServe"} <= set(wide.split())
    assert "afddeployment.afd.dev/demo" in api.kubectl("get", "all", "-n", namespace)
    api.kubectl("wait", "--for=condition=Ready", "afd/demo", "-n", namespace, "--timeout=10s")


def test_scale_writes_units_and_nothing_else(api: Rack, namespace: str) -> None:
    before = create(api, namespace, MINIMAL)["spec"]
    status(api, namespace, units=1, selector="afd.dev/deployment=demo")
    api.kubectl("scale", "afd", "demo", "-n", namespace, "--current-replicas=1", "--replicas=3")
    after = json.loads(api.kubectl("get", "afd", "demo", "-n", namespace, "-o", "json"))["spec"]
    assert after == {**before, "units": 3}
    scale = json.loads(
        api.kubectl(
            "get", "--raw", f"/apis/afd.dev/v1alpha1/namespaces/{namespace}/afddeployments/demo/scale"
        )
    )
    assert scale["status"] == {"replicas": 1, "selector": "afd.dev/deployment=demo"}


def test_scaling_past_the_limit_is_refused(api: Rack, namespace: str) -> None:
    create(api, namespace, MINIMAL)
    with pytest.raises(CommandError, match=r"spec\.units"):
        api.kubectl("scale", "afd", "demo", "-n", namespace, "--replicas=1001")


def test_spec_and_status_are_written_apart(api: Rack, namespace: str) -> None:
    written = {**MINIMAL, "status": {"readyUnits": 7}}
    assert "status" not in create(api, namespace, written)
    patch = '{"spec":{"units":9},"status":{"readyUnits":1}}'
    api.kubectl("patch", "afd", "demo", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    found = json.loads(api.kubectl("get", "afd", "demo", "-n", namespace, "-o", "json"))
    assert (found["spec"]["units"], found["status"]["readyUnits"]) == (1, 1)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("afd.spec.placement.fabric", "ComputeDomain"),
        ("afd.spec.microbatches", "Slices of a step's batch"),
        ("afd.spec.runtime.podTemplate.spec.containers.env", "environment variables"),
        ("afd.status.unitStatuses.stage", "Broken"),
    ],
)
def test_explain_tells_what_a_field_means(api: Rack, field: str, words: str) -> None:
    assert words in " ".join(api.kubectl("explain", field).split())


@pytest.mark.parametrize("name", ["a", "7", "a.b.c", "x" * 253])
def test_every_legal_name_is_taken(api: Rack, namespace: str, name: str) -> None:
    create(api, namespace, {**MINIMAL, "metadata": {"name": name}})


def test_a_name_past_the_limit_is_refused(api: Rack, namespace: str) -> None:
    with pytest.raises(CommandError, match=r"metadata\.name"):
        create(api, namespace, {**MINIMAL, "metadata": {"name": "x" * 254}})
