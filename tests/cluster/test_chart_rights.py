"""The operator under exactly the rights of its chart: it does all of its work, and no right lies idle.

A deployment's whole life is played with the account that the chart makes. The API server's audit log then
says what was asked: nothing was refused, and what was granted and never used is named here with its reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.published import await_api
from tests.rack import Rack
from tests.rack.clients import wait
from tests.rack.fixtures import MakeRack
from tests.rack.volumes import shared_folder
from tests.unit.api.specs import patched, template
from tests.unit.chart.values_table import CHART

pytestmark = pytest.mark.cluster

Right = tuple[str, str]
"""Verb; resource as in `afd.dev/afddeployments/status`."""

NAMESPACE = "afd-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:afd-operator"
WITHIN_S = 60.0

UNUSED: dict[Right, str] = {
    ("update", "afd.dev/afddeployments/finalizers"): "asked only by OwnerReferencesPermissionEnforcement",
}
"""Granted, and rightly never seen in an audit log."""

DEMO = patched(
    {
        "units": 2,
        **template(tolerations=[{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]),
    }
)


@pytest.fixture(params=[(), ("default",)], ids=["all namespaces", "one namespace"])
def namespaces(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """`watchNamespaces`."""
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def home(make_rack: MakeRack, namespaces: tuple[str, ...]) -> Rack:
    """Two domains, and the chart with its CRD. Hollow nodes run nothing, so its pod holds no Lease."""
    own = make_rack(domains=2, nodes=3, gpus=4)
    own.helm("install", *release(namespaces), "--create-namespace")
    await_api(own)
    return own


@pytest.fixture
def operator(home: Rack, namespaces: tuple[str, ...], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The operator's process, with the account's kubeconfig and no other credentials."""
    kubeconfig = home.kubeconfig_of(f"{NAMESPACE}/afd-operator")
    command = [sys.executable, "-m", "afd_operator.controller.main", "--kubeconfig", str(kubeconfig)]
    watched = [f"--watch-namespace={name}" for name in namespaces]
    environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    with (tmp_path / "operator.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--namespace", NAMESPACE, "--identity", "tested", "--http-port", "0", *watched],
            stderr=log, env=environment,
        )  # fmt: skip
        yield process
        process.kill()
        process.wait()
    print((tmp_path / "operator.log").read_text())


def release(namespaces: tuple[str, ...]) -> list[str]:
    """Arguments of helm."""
    values = ["--set", f"watchNamespaces={{{','.join(namespaces)}}}"] if namespaces else []
    return ["afd-operator", str(CHART), "--namespace", NAMESPACE, *values]


def granted(rack: Rack, namespaces: tuple[str, ...]) -> set[Right]:
    out = rack.helm("template", *release(namespaces))
    roles = [
        manifest
        for manifest in yaml.safe_load_all(out)
        if manifest and manifest["kind"] in ("ClusterRole", "Role") and "aggregate" not in str(manifest)
    ]
    return {
        (verb, f"{group}/{resource}".removeprefix("/"))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(events: list[dict[str, Any]]) -> set[Right]:
    """What was asked of resources. An apply that made an object needed `create` as well."""
    found = set()
    for event in events:
        if (what := event.get("objectRef")) is None or "resource" not in what:
            continue
        parts = (what.get("apiGroup", ""), what["resource"], what.get("subresource", ""))
        resource = "/".join(part for part in parts if part)
        found.add((event["verb"], resource))
        if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
            found.add(("create", resource))
    return found


def refused(events: list[dict[str, Any]]) -> list[str]:
    return [e["requestURI"] for e in events if e.get("responseStatus", {}).get("code") in (401, 403)]


def ready(rack: Rack, units: str) -> bool:
    found = json.loads(rack.kubectl("get", "afd", "demo", "-o", "json")).get("status", {})
    return bool(found.get("ready") == units)


def reservations(rack: Rack) -> list[str]:
    out = rack.kubectl("get", "leases", "-n", NAMESPACE, "-l", "afd.dev/reservation", "-o", "name")
    return out.split()


def test_a_deployments_whole_life_uses_every_right_and_needs_no_other(
    home: Rack, operator: subprocess.Popen[bytes], namespaces: tuple[str, ...], tmp_path: Path
) -> None:
    home.apply(*shared_folder("default", "models", tmp_path), DEMO)
    wait("both units serve", lambda: ready(home, "2/2"), WITHIN_S)
    home.kubectl("scale", "afd", "demo", "--replicas=1")
    wait("one unit is gone", lambda: len(reservations(home)) == 1, WITHIN_S)
    home.kubectl("delete", "afd", "demo")
    wait("its domain is free", lambda: not reservations(home), WITHIN_S)
    operator.send_signal(signal.SIGTERM)
    assert operator.wait(10) == 0

    asked = home.audit(ACCOUNT)
    assert refused(asked) == []
    assert granted(home, namespaces) - used(asked) == set(UNUSED)
