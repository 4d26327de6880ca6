"""The demo on the cluster of the current kubeconfig: used only when CLUSTER=current asks for it by name.

The cluster must have what a rack brings along: GPU nodes with the label `nvidia.com/gpu.clique`, images that
it can pull (OPERATOR_IMAGE, RUNTIME_IMAGE), and in the namespace `demo` a claim `models` with the folder
tests/models/demo in it.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from tests.rack import CommandError, binaries, clients
from tests.rack.demo_cluster import (
    NAMESPACE,
    OPERATOR_NAMESPACE,
    RELEASE,
    DemoError,
    Step,
    demo_manifest,
    logs,
)

COMMAND_TIMEOUT_S = 300
FORWARD_WITHIN_S = 30.0


class CurrentCluster:
    """A `Cluster` that is there already. `close` removes what the demo added, and nothing else."""

    def __init__(self, environment: Mapping[str, str]):
        self._images = {name: environment.get(name, "") for name in ("OPERATOR_IMAGE", "RUNTIME_IMAGE")}
        self._commands: dict[str, str] = {}
        self._installed = False

    def prepare(self) -> Sequence[Step]:
        return (("current cluster checked", self._check),)

    def _check(self) -> None:
        missing = [name for name, image in self._images.items() if not image]
        if missing:
            raise DemoError(
                f"CLUSTER=current needs {' and '.join(missing)}: images built from operator/Containerfile "
                "and runtime/Containerfile that the cluster can pull"
            )
        built = None
        for command in ("kubectl", "helm"):
            found = shutil.which(command)
            if found is None:
                built = built or binaries.ensure()
            self._commands[command] = found or built[command]
        print(f"using the cluster of context {self.kubectl('config', 'current-context').strip()}")
        self.kubectl("get", "pvc", "models", "-n", NAMESPACE)
        releases = self.helm("list", "--namespace", OPERATOR_NAMESPACE, "--short").split()
        self._installed = RELEASE not in releases

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._run("kubectl", *arguments, stdin=stdin)

    def helm(self, *arguments: str) -> str:
        return self._run("helm", *arguments)

    def _run(self, command: str, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [self._commands[command], *arguments], input=stdin, capture_output=True, text=True, check=False,
            timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise CommandError([command, *arguments], done.returncode, done.stdout, done.stderr)
        return done.stdout

    def operator_image(self) -> str:
        return self._images["OPERATOR_IMAGE"]

    def deployment(self) -> dict[str, Any]:
        """Without the additions to pods: an image for a real cluster brings its own torch."""
        manifest = demo_manifest(self._images["RUNTIME_IMAGE"])
        del manifest["spec"]["runtime"]["podTemplate"]
        return manifest

    @contextmanager
    def gateway(self) -> Iterator[str]:
        with closing(socket.create_server(("127.0.0.1", 0))) as probe:
            port = probe.getsockname()[1]
        forward = subprocess.Popen(
            [self._commands["kubectl"], "port-forward", "-n", NAMESPACE, "service/demo", f"{port}:80"],
            stdout=subprocess.DEVNULL,
        )
        try:
            clients.wait("the port-forward listens", lambda: _listens(port), FORWARD_WITHIN_S)
            yield f"http://127.0.0.1:{port}"
        finally:
            forward.terminate()
            forward.wait()

    def look_around(self) -> str:
        return "\n".join(
            (
                "To look around:",
                f"  kubectl -n {NAMESPACE} get afd,pods -o wide",
                f"  kubectl -n {NAMESPACE} describe afd demo",
                f"  kubectl -n {NAMESPACE} port-forward service/demo 8000:80",
            )
        )

    def describe(self) -> str:
        return logs(self) if self._commands else ""

    def keep(self) -> None:
        """Nothing to do: nothing here ends with this process."""

    def close(self) -> None:
        if not self._commands:
            return
        self.kubectl("delete", "afd", "demo", "-n", NAMESPACE, "--ignore-not-found")
        if self._installed:
            self.helm("uninstall", RELEASE, "--namespace", OPERATOR_NAMESPACE, "--ignore-not-found")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
