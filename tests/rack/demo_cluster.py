"""What the demo needs of a cluster, and what it does the same way on each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.rack.images import ROOT

CHART = ROOT / "charts" / "afd-operator"
MANIFEST = Path(__file__).parent / "manifests" / "demo.yaml"
NAMESPACE = "demo"
OPERATOR_NAMESPACE = "afd-system"
RELEASE = "afd-operator"
READY_WITHIN_S = 180
LOG_LINES = 15

Step = tuple[str, Callable[[], None]]


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why and what to do."""


class Cluster(Protocol):
    """A rack that the demo makes, or the cluster of the current kubeconfig."""

    def prepare(self) -> Sequence[Step]:
        """What must be done first, in order, each with its name. After it the rest may be called."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Standard output. Raises CommandError."""

    def helm(self, *arguments: str) -> str:
        """Standard output. Raises CommandError."""

    def operator_image(self) -> str: ...

    def deployment(self) -> dict[str, Any]:
        """The AFDDeployment to apply."""

    def gateway(self) -> AbstractContextManager[str]:
        """URL of the gateway, for as long as the block lasts."""

    def look_around(self) -> str:
        """Commands to try while it is up."""

    def describe(self) -> str:
        """The state that matters when something failed."""

    def keep(self) -> None:
        """Leave it up after this process."""

    def close(self) -> None:
        """Take down what the demo made."""


def demo_manifest(image: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    manifest["spec"]["runtime"]["image"] = image
    return manifest


def install_operator(cluster: Cluster) -> None:
    repository, _, tag = cluster.operator_image().rpartition(":")
    cluster.helm(
        "upgrade", "--install", RELEASE, str(CHART), "--namespace", OPERATOR_NAMESPACE, "--create-namespace",
        "--set-string", f"image.repository={repository},image.tag={tag}", "--wait", "--timeout", "120s",
    )  # fmt: skip


def apply_and_wait(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(cluster.deployment()))
    cluster.kubectl(
        "wait", "-n", NAMESPACE, "--for=condition=Ready", "afd/demo", f"--timeout={READY_WITHIN_S}s"
    )


def pods_table(cluster: Cluster) -> str:
    """Role, node and domain of each pod of the deployment."""
    pods = json.loads(
        cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", "afd.dev/deployment", "-o", "json")
    )
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", "nvidia.com/gpu.clique", "-o", "json"))
    domains = {
        node["metadata"]["name"]: node["metadata"]["labels"]["nvidia.com/gpu.clique"]
        for node in nodes["items"]
    }
    rows = [("POD", "ROLE", "NODE", "DOMAIN")]
    for pod in pods["items"]:
        node = pod["spec"].get("nodeName", "-")
        role = pod["metadata"]["labels"].get("afd.dev/role", "-")
        rows.append((pod["metadata"]["name"], role, node, domains.get(node, "-")))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)) for row in rows)


def logs(cluster: Cluster) -> str:
    """The end of the logs of operator and runtime, with the deployment's conditions."""
    parts = []
    for words in (
        ["get", "afd", "-n", NAMESPACE, "-o", "yaml"],
        ["logs", "-n", OPERATOR_NAMESPACE, f"deployment/{RELEASE}", f"--tail={LOG_LINES * 2}"],
        ["logs", "-n", NAMESPACE, "-l", "afd.dev/deployment", "--all-containers", "--prefix",
         "--ignore-errors", "--max-log-requests=50", f"--tail={LOG_LINES}"],
    ):  # fmt: skip
        try:
            said = cluster.kubectl(*words)
        except Exception as error:  # a report of a failure must not fail itself
            said = str(error)
        parts.append(f"$ kubectl {' '.join(words)}\n{said}")
    return "\n".join(parts)
