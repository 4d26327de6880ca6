"""A running rack, as tests and the demo hold it: kubectl, helm, clients, the audit log, knobs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from tests.rack import clients, spec, volumes
from tests.rack.addresses import Addresses
from tests.rack.binaries import Binaries
from tests.rack.claim import Claim
from tests.rack.controlplane import Credentials, Place
from tests.rack.knobs import NodeKnobs, kill_container
from tests.rack.node import RealNode
from tests.rack.pki import Authority
from tests.rack.places import place_of
from tests.rack.processes import Processes
from tests.rack.spec import Node, RackSpec

COMMAND_TIMEOUT_S = 300
SERVICE_ACCOUNT_WITHIN_S = 30.0
READ_VERBS = ("get", "list", "watch")
ADMIN = "kubernetes-admin"


class CommandError(RuntimeError):
    """A command ended with an error; `stderr` is what it said."""

    def __init__(self, command: Sequence[str], code: int, stdout: str, stderr: str):
        super().__init__(f"{' '.join(command)} ended with {code}:\n{stdout}{stderr}".rstrip())
        self.code, self.stdout, self.stderr = code, stdout, stderr


@dataclass(frozen=True, eq=False)
class Rack:
    """Everything that one can ask of a rack. Made by `lifecycle`; closes its connections, not the rack."""

    spec: RackSpec
    claim: Claim
    binaries: Binaries

    @property
    def folder(self) -> Path:
        return self.claim.folder

    @property
    def addresses(self) -> Addresses:
        return self.claim.addresses

    @cached_property
    def place(self) -> Place:
        return place_of(self.addresses, self.spec.has_real_nodes)

    @cached_property
    def credentials(self) -> Credentials:
        folder = self.folder / "pki"
        return Credentials(Authority(folder), folder, self.place.server)

    @cached_property
    def processes(self) -> Processes:
        return Processes(self.folder / "processes")

    @cached_property
    def kubeconfig(self) -> Path:
        """Of the administrator. `export KUBECONFIG=...` and any tool works from the user's own shell."""
        return self.credentials.kubeconfig(ADMIN, "system:masters")

    @cached_property
    def api(self) -> client.ApiClient:
        return clients.connect(self.kubeconfig)

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    def close(self) -> None:
        if "api" in self.__dict__:
            self.api.close()

    # Commands

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; returns its stdout. Raises CommandError."""
        return self._run("kubectl", arguments, stdin)

    def helm(self, *arguments: str) -> str:
        """Run helm as administrator; returns its stdout. Raises CommandError."""
        return self._run("helm", arguments, None)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """`kubectl apply` of manifests. Raises CommandError."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def _run(self, command: str, arguments: Sequence[str], stdin: str | None) -> str:
        words = [self.binaries[command], *arguments]
        home = {name: str(self.folder / "home") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False,
            env=os.environ | home | {"KUBECONFIG": str(self.kubeconfig)},
        )  # fmt: skip
        if done.returncode:
            raise CommandError([command, *arguments], done.returncode, done.stdout, done.stderr)
        return done.stdout

    # What is in it

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return self.spec.all_nodes()

    @cached_property
    def real_nodes(self) -> tuple[RealNode, ...]:
        return tuple(
            RealNode(
                node, self.addresses, self.folder, self.binaries, self.credentials, self.processes,
                dict(self.spec.feature_gates),
            )
            for node in self.nodes
            if node.real
        )  # fmt: skip

    def clique(self, domain: int) -> str:
        """Value of `nvidia.com/gpu.clique` on the nodes of a domain."""
        return spec.clique(domain)

    def node(self, name: str) -> NodeKnobs:
        """The knobs of one node: cordon it, make it NotReady, change its labels, remove it."""
        for node in self.nodes:
            if node.name == name:
                return NodeKnobs(self, node)
        raise KeyError(f"no node {name!r}; there are {', '.join(node.name for node in self.nodes)}")

    def kill_container(self, namespace: str, pod: str, container: str) -> None:
        """`kill -9` of the main process of a container on a real node."""
        kill_container(self, namespace, pod, container)

    def namespace(self, name: str) -> str:
        """Make a namespace and wait until pods can be created in it. Returns its name."""
        self.core.create_namespace({"metadata": {"name": name}})
        self.await_service_account(name)
        return name

    def share_folder(self, namespace: str, claim: str, folder: Path) -> None:
        """Let pods of a namespace mount a folder of the host read-only, through a PersistentVolumeClaim. Pod
        Security `restricted` allows that, while it refuses a hostPath volume. Real nodes only."""
        for manifest in volumes.shared_folder(namespace, claim, folder):
            self.apply(manifest)

    def await_service_account(self, namespace: str, name: str = "default") -> None:
        def exists() -> bool:
            selector = f"metadata.name={name}"
            return bool(self.core.list_namespaced_service_account(namespace, field_selector=selector).items)

        clients.wait(f"service account {namespace}/{name}", exists, SERVICE_ACCOUNT_WITHIN_S)

    def kubeconfig_of(self, service_account: str) -> Path:
        """A kubeconfig with the rights of ServiceAccount `namespace/name`, and no more."""
        namespace, name = service_account.split("/")
        body = {"spec": {"expirationSeconds": 24 * 3600}}
        token = self.core.create_namespaced_service_account_token(name, namespace, body).status.token
        path = self.folder / "pki" / f"{namespace}.{name}.kubeconfig"
        return self.credentials.authority.token_kubeconfig(path, self.place.server, token)

    # What happened

    def audit(self, user: str | None = None) -> list[dict[str, Any]]:
        """The API server's audit events so far, oldest first; of one user if asked."""
        text = (self.folder / "audit.log").read_text()
        whole_lines = text[: text.rfind("\n") + 1].splitlines()
        events = [json.loads(line) for line in whole_lines]
        return [event for event in events if user is None or event["user"]["username"] == user]

    def writes(self, user: str | None = None) -> list[dict[str, Any]]:
        """The audit events that are not reads."""
        return [event for event in self.audit(user) if event["verb"] not in READ_VERBS]

    def describe(self, namespace: str | None = None) -> str:
        """The state that matters when something failed: nodes, pods, events, the end of each log."""
        where = ["-n", namespace] if namespace else ["-A"]
        parts = []
        for words in (
            ["get", "nodes"],
            ["get", "pods", "-o", "wide", *where],
            ["get", "events", "--sort-by=.lastTimestamp", *where],
        ):
            try:
                parts.append(f"$ kubectl {' '.join(words)}\n{self.kubectl(*words)}")
            except (CommandError, subprocess.TimeoutExpired) as error:
                parts.append(str(error)[-500:])
                break  # without an API server the others fail in the same way
        parts += [
            f"--- {process.name}{'' if process.alive else ' (ended)'}\n{process.log_tail(12)}"
            for process in self.processes.recorded()
        ]
        return "\n".join(parts)
