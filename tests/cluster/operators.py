"""The operator as a process, with the account, the roles and the CRD of its chart and nothing else.

    home = install(rack)
    with home.operator() as operator: ...

Nodes are hollow: kwok says of pods that they run and are Ready, no coordinator answers, and a container
does not wait for its ConfigMap. What a container would see is tested on real nodes (tests/e2e).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client
from tests.cluster.published import await_api
from tests.rack import Rack
from tests.rack.clients import wait
from tests.rack.spec import HOLLOW
from tests.unit.api.specs import patched, template
from tests.unit.chart.values_table import CHART

Json = dict[str, Any]

SYSTEM = "afd-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:afd-operator"
LEADER = "afd-operator"
"""Name of the leader's Lease."""
WITHIN_S = 60.0
IDENTITY = "tested"
"""The same in every life of the process, so that a new one need not wait for the old one's Lease."""


def afd(name: str, namespace: str, **spec: Any) -> Json:
    """A small deployment (1:1 nodes of 4 GPUs) that hollow nodes take."""
    tolerant = template(tolerations=[{"key": HOLLOW, "operator": "Exists", "effect": "NoSchedule"}])
    return {**patched(spec, patched(tolerant)), "metadata": {"name": name, "namespace": namespace}}


@dataclass(frozen=True)
class Operator:
    """A running operator."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def port(self) -> int:
        """Where it serves `/metrics`."""
        text = wait("the operator has started", lambda: self._started(), WITHIN_S, self.log.read_text)
        return int(text)

    def _started(self) -> str | None:
        found = re.search(r"event=started .*port=(\d+)", self.log.read_text())
        return found[1] if found else None

    def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[{{ ]", line))

    def leads(self) -> bool:
        return self.metric("afd_operator_leader") == 1

    def errors(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if "level=error" in line]


@dataclass(frozen=True)
class Home:
    """A rack in which the chart is installed."""

    rack: Rack

    @contextmanager
    def operator(self, server: str | None = None, identity: str = IDENTITY) -> Iterator[Operator]:
        """An operator that talks to the API server, or to `server` in front of it. Killed at the end."""
        kubeconfig = self.rack.kubeconfig_of(f"{SYSTEM}/afd-operator")
        with tempfile.TemporaryDirectory() as folder:
            if server is not None:
                through = re.sub(r"server: .*", f"server: {server}", kubeconfig.read_text())
                kubeconfig = Path(folder) / "kubeconfig"
                kubeconfig.write_text(through)
            log = Path(folder) / "operator.log"
            command = [sys.executable, "-m", "afd_operator.controller.main", "--kubeconfig", str(kubeconfig)]
            command += ["--namespace", SYSTEM, "--identity", identity, "--http-port", "0"]
            environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
            with log.open("wb") as stderr:
                process = subprocess.Popen(command, stderr=stderr, env=environment)
                try:
                    yield Operator(process, log)
                except BaseException:
                    print(log.read_text())
                    raise
                finally:
                    process.kill()
                    process.wait()

    def namespace(self, name: str) -> str:
        """A namespace that enforces Pod Security `restricted`, with the claim that holds the model."""
        self.rack.namespace(name)
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.rack.core.patch_namespace(name, {"metadata": {"labels": label}})
        volume = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": "",
            "hostPath": {"path": "/models"}, "claimRef": {"namespace": name, "name": "models"},
        }  # fmt: skip
        claim = {
            "accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": f"models-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        }  # fmt: skip
        self.rack.core.create_persistent_volume({"metadata": {"name": f"models-{name}"}, "spec": volume})
        self.rack.core.create_namespaced_persistent_volume_claim(
            name, {"metadata": {"name": "models"}, "spec": claim}
        )
        return name

    # ---- questions ----

    def get(self, name: str, namespace: str) -> Json:
        api = client.CustomObjectsApi(self.rack.api)
        found: Json = api.get_namespaced_custom_object(
            "afd.dev", "v1alpha1", namespace, "afddeployments", name
        )
        return found

    def condition(self, name: str, namespace: str, kind: str) -> tuple[str, str]:
        """(status, reason); ("", "") while it is absent."""
        for found in self.get(name, namespace).get("status", {}).get("conditions", []):
            if found["type"] == kind:
                return found["status"], found["reason"]
        return "", ""

    def await_condition(
        self, name: str, namespace: str, kind: str, status: str, reason: str | None = None
    ) -> None:
        def holds() -> bool:
            found = self.condition(name, namespace, kind)
            return found[0] == status and reason in (None, found[1])

        wait(
            f"{name}: {kind} is {status} {reason or ''}", holds, WITHIN_S,
            lambda: json.dumps(self.get(name, namespace).get("status"), indent=1),
        )  # fmt: skip

    def pods(self, namespace: str, unit: bool = True) -> list[Json]:
        selector = "afd.dev/unit" if unit else ""
        found = self.rack.core.list_namespaced_pod(namespace, label_selector=selector)
        return [self.rack.api.sanitize_for_serialization(pod) for pod in found.items]

    def config_maps(self, namespace: str) -> list[Json]:
        found = self.rack.core.list_namespaced_config_map(namespace, label_selector="afd.dev/unit")
        return [self.rack.api.sanitize_for_serialization(item) for item in found.items]

    def domains(self) -> dict[str, str]:
        """Holder by domain."""
        leases = client.CoordinationV1Api(self.rack.api).list_namespaced_lease(
            SYSTEM, label_selector="afd.dev/reservation"
        )
        return {
            lease.metadata.annotations["afd.dev/domain"]: lease.spec.holder_identity for lease in leases.items
        }

    def domain_of(self, node: str) -> str:
        labels = self.rack.core.read_node(node).metadata.labels
        return str(labels["nvidia.com/gpu.clique"])

    def writes(self) -> list[str]:
        """What the operator has written so far, without the renewals of its own Lease."""
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self.rack.writes(ACCOUNT)
            if event["objectRef"].get("name") != LEADER and event["stage"] == "ResponseComplete"
        ]

    def writes_at_rest(self, operator: Operator, name: str, namespace: str) -> list[str]:
        """What a look writes at which nothing is to be done. The look is provoked, and awaited."""
        before, looks = len(self.writes()), operator.metric("afd_operator_reconcile_total")
        self.rack.kubectl("annotate", "afd", name, "-n", namespace, "--overwrite", f"test/poke={looks}")
        wait(
            "the operator looks again",
            lambda: operator.metric("afd_operator_reconcile_total") > looks,
            WITHIN_S,
        )
        return self.writes()[before:]

    # ---- what holds always ----

    def check(self, namespace: str) -> None:
        """No two units on a domain, every pod in the domain that its unit holds, no unit started in part."""
        domains = self.domains()
        pods = self.pods(namespace)
        for pod in pods:
            name, notes = pod["metadata"]["name"], pod["metadata"]["annotations"]
            unit = f"{namespace}/{notes['afd.dev/deployment-name']}/{unit_of(pod)[1]}"
            assert domains.get(notes["afd.dev/domain"]) == unit, (name, domains)
            if node := pod["spec"].get("nodeName"):
                assert self.domain_of(node) == notes["afd.dev/domain"]
        for config in self.config_maps(namespace):
            unit_pods = [pod for pod in pods if unit_of(pod) == unit_of(config)]
            assert unit_pods, "a unit without pods has a ConfigMap"
            assert all(pod["spec"].get("nodeName") for pod in unit_pods), "half a unit was started"


def unit_of(body: Json) -> tuple[str, str]:
    """(deployment, unit) by the labels of a child."""
    labels = body["metadata"]["labels"]
    return labels["afd.dev/deployment"], labels["afd.dev/unit"]


def install(rack: Rack) -> Home:
    """The chart with its CRD. Its own pod lands on a hollow node, where nothing runs."""
    rack.helm("install", "afd-operator", str(CHART), "--namespace", SYSTEM, "--create-namespace")
    await_api(rack)
    return Home(rack)
