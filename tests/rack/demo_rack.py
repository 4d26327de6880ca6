"""The demo's own cluster: two NVL72 domains, of which the first has two real nodes."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rack import Rack, RackSpec, binaries, claim, down, host, images, up
from tests.rack.claim import Claim
from tests.rack.demo_cluster import NAMESPACE, OPERATOR_NAMESPACE, DemoError, Step, demo_manifest, logs

SPEC = RackSpec(domains=2, nodes=18, gpus=4, real=2)
MODELS = images.ROOT / "tests" / "models"
_MARK = "demo"


def demos() -> list[Claim]:
    """Racks on this machine that demos made."""
    return [found for found in claim.claims() if (found.folder / _MARK).exists()]


class RackCluster:
    """A `Cluster` that `prepare` brings up from nothing."""

    def __init__(self) -> None:
        self._rack: Rack | None = None
        self._operator: images.Image | None = None
        self._runtime: images.Image | None = None

    @property
    def rack(self) -> Rack:
        if self._rack is None:
            raise DemoError("the rack is not up")
        return self._rack

    def prepare(self) -> Sequence[Step]:
        return (
            ("control plane's commands built", self._build_commands),
            ("images built", self._build_images),
            ("rack up: 2 domains x 18 nodes x 4 GPUs", self._start),
        )

    def _build_commands(self) -> None:
        if demos():
            raise DemoError("a demo is up already; `make demo-down` ends it")
        host.prepare(real_nodes=True)
        binaries.ensure()

    def _build_images(self) -> None:
        self._operator = images.project("operator", extras="operator")
        self._runtime = images.project("runtime", extras="server")

    def _start(self) -> None:
        built = [image for image in (self._operator, self._runtime) if image is not None]
        self._rack = up(SPEC, images=built)
        (self.rack.folder / _MARK).touch()
        self.rack.namespace(NAMESPACE)
        self.rack.share_folder(NAMESPACE, "models", MODELS)
        self.rack.share_folder(NAMESPACE, "site-packages", Path(sysconfig.get_paths()["platlib"]))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.rack.kubectl(*arguments, stdin=stdin)

    def helm(self, *arguments: str) -> str:
        return self.rack.helm(*arguments)

    def operator_image(self) -> str:
        assert self._operator is not None, "prepare comes first"
        return self._operator.reference

    def deployment(self) -> dict[str, Any]:
        assert self._runtime is not None, "prepare comes first"
        return demo_manifest(self._runtime.reference)

    @contextmanager
    def gateway(self) -> Iterator[str]:
        """Service addresses are routed from the host: no port-forward is needed."""
        yield f"http://{self.rack.core.read_namespaced_service('demo', NAMESPACE).spec.cluster_ip}"

    def look_around(self) -> str:
        with self.gateway() as url:
            chat = '{"model": "afd/demo", "messages": [{"role": "user", "content": "Tell me about Bath."}]}'
            return "\n".join(
                (
                    "To look around:",
                    f"  export KUBECONFIG={self.rack.kubeconfig} PATH=$PATH:{self._commands()}",
                    "  kubectl get nodes -L nvidia.com/gpu.clique",
                    f"  kubectl -n {NAMESPACE} get afd,pods -o wide",
                    f"  kubectl -n {NAMESPACE} describe afd demo",
                    f"  kubectl -n {NAMESPACE} logs demo-0-attn-0 -c gpu-0",
                    f"  kubectl -n {OPERATOR_NAMESPACE} logs deployment/afd-operator",
                    f"  curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{chat}'",
                )
            )

    def _commands(self) -> str:
        return ":".join(str(Path(self.rack.binaries[name]).parent) for name in ("kubectl", "helm"))

    def describe(self) -> str:
        return f"{self._rack.describe()}\n{logs(self)}" if self._rack is not None else ""

    def keep(self) -> None:
        self.rack.claim.keep()

    def close(self) -> None:
        if self._rack is not None:
            self._rack.close()
            down(self._rack.claim)
            self._rack = None
