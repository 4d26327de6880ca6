"""The knobs of one node: what can happen to a node of a rack, on demand.

    r.node("d0-n03").cordon()                  schedulable, or not
    r.node("d0-n03").label("nvidia.com/gpu.clique", None)
    r.node("d0-n03").not_ready()               hollow: says so and stays so; real: its kubelet is killed
    r.node("d0-n03").remove()                  gone, with everything on it
    r.kill_container("default", "demo-0-attn-0", "gpu-1")

Mirror images: cordon/uncordon, not_ready/ready, stop_kubelet/start_kubelet, remove/add.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from tests.rack import clients
from tests.rack.node import RealNode
from tests.rack.spec import NOT_READY, Node

if TYPE_CHECKING:
    from tests.rack.handle import Rack

NODE_WITHIN_S = 60.0


class NodeKnobs:
    """One node of one rack. Methods return once the API shows what they did."""

    def __init__(self, rack: Rack, node: Node):
        self._rack = rack
        self.node = node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def real(self) -> RealNode:
        """Raises ValueError for a hollow node: it has no kubelet and no containers."""
        for real in self._rack.real_nodes:
            if real.node is self.node:
                return real
        raise ValueError(f"{self.name} is a hollow node")

    def give_gpus(self) -> None:
        """Capacity of `nvidia.com/gpu`, which a device plugin would report. A kubelet keeps it, also when it
        restarts; it is lost with the Node object."""
        amounts = self.node.gpu_capacity()
        if amounts:
            self._rack.core.patch_node_status(
                self.name, {"status": {"capacity": amounts, "allocatable": amounts}}
            )

    def cordon(self) -> None:
        self._patch({"spec": {"unschedulable": True}})

    def uncordon(self) -> None:
        self._patch({"spec": {"unschedulable": None}})

    def label(self, key: str, value: str | None) -> None:
        """Set a label; None drops it."""
        self._patch({"metadata": {"labels": {key: value}}})

    def not_ready(self, status: str = "Unknown") -> None:
        """Ready becomes "Unknown": nobody hears from the node, its pods are marked not Ready. A real node's
        kubelet is killed for that, and the control plane takes its time to notice. A hollow node can also
        say "False": its kubelet lives, its pods stay as they are."""
        if self.node.real:
            self.stop_kubelet()
            self.await_ready("Unknown")
            return
        self._patch({"metadata": {"annotations": {NOT_READY: status}}})
        self.await_ready(status)
        if status == "Unknown":
            self._mark_pods("False")

    def ready(self) -> None:
        """Ready again, and its pods with it."""
        if self.node.real:
            self.start_kubelet()
            self.await_ready("True")
            return
        self._patch({"metadata": {"annotations": {NOT_READY: None}}})
        self.await_ready("True")
        self._mark_pods("True")

    def stop_kubelet(self) -> None:
        """SIGKILL. Its containers run on."""
        self.real.stop_kubelet()

    def start_kubelet(self) -> None:
        self.real.start_kubelet()

    def kill_kubelet(self) -> None:
        """SIGKILL to the process, which its node's service manager starts again."""
        self.real.kill_kubelet()

    def _mark_pods(self, status: str) -> None:
        """As the node lifecycle controller does for a silent kubelet, and a kubelet that is back."""
        selector = f"spec.nodeName={self.name},status.phase=Running"
        for pod in self._rack.core.list_pod_for_all_namespaces(field_selector=selector).items:
            self._rack.core.patch_namespaced_pod_status(
                pod.metadata.name,
                pod.metadata.namespace,
                {"status": {"conditions": [{"type": "Ready", "status": status}]}},
            )

    def remove(self) -> None:
        """The machine is gone: containers and all, and its Node object too."""
        if self.node.real:
            self.real.power_off()
        self._rack.core.delete_node(self.name)

    def add(self) -> None:
        """The mirror image of `remove`: the machine is back, with its labels as they were made."""
        self._rack.core.create_node(self.node.manifest())
        if self.node.real:
            self.real.power_on()
            self.real.start_kubelet()
            self.real.start_proxy()
        self.await_ready("True")
        if self.node.real:
            self.give_gpus()

    def await_ready(self, status: str) -> None:
        clients.wait(
            f"node {self.name} Ready={status}", lambda: self._ready_status() == status, NODE_WITHIN_S,
            seen=lambda: f"Ready={self._ready_status()}",
        )  # fmt: skip

    def _ready_status(self) -> str | None:
        conditions = self._rack.core.read_node(self.name).status.conditions or []
        return next((condition.status for condition in conditions if condition.type == "Ready"), None)

    def _patch(self, body: dict[str, Any]) -> None:
        self._rack.core.patch_node(self.name, body)


def kill_container(rack: Rack, namespace: str, pod: str, container: str) -> None:
    """SIGKILL to process 1 of a container on a real node. Raises KeyError if it does not run."""
    found = rack.core.read_namespaced_pod(pod, namespace)
    for status in found.status.container_statuses or []:
        if status.name == container and status.state.running:
            runtime_id = status.container_id.removeprefix("containerd://")
            os.kill(rack.node(found.spec.node_name).real.container_pid(runtime_id), signal.SIGKILL)
            return
    raise KeyError(f"container {container!r} of pod {namespace}/{pod} does not run")
