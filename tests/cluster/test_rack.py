"""The rack itself: what every other test in this folder builds on."""

from __future__ import annotations

import json

import pytest
from tests.rack import CommandError, Rack
from tests.rack.clients import wait
from tests.rack.fixtures import MakeRack

pytestmark = pytest.mark.cluster

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
TOLERATIONS = [
    {"key": "nvidia.com/gpu", "operator": "Exists"},
    {"key": "kwok.x-k8s.io/node", "operator": "Exists"},
]


def gpu_pod(name: str, gpus: int = 4, **spec: object) -> dict:
    container = {
        "name": "c",
        "image": "example.invalid/none",
        "securityContext": RESTRICTED,
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "tolerations": TOLERATIONS, **spec},
    }


def create(rack: Rack, namespace: str, pod: dict) -> None:
    rack.core.create_namespaced_pod(namespace, pod)


def node_of(rack: Rack, namespace: str, name: str) -> str | None:
    return rack.core.read_namespaced_pod(name, namespace).spec.node_name


def is_ready(rack: Rack, namespace: str, name: str) -> bool:
    conditions = rack.core.read_namespaced_pod(name, namespace).status.conditions or []
    return any(c.type == "Ready" and c.status == "True" for c in conditions)


def unschedulable(rack: Rack, namespace: str, name: str) -> str | None:
    for c in rack.core.read_namespaced_pod(name, namespace).status.conditions or []:
        if c.type == "PodScheduled" and c.status == "False":
            return c.message
    return None


def test_nodes_look_like_those_of_an_nvl72(rack: Rack) -> None:
    for domain in (0, 1):
        nodes = rack.core.list_node(label_selector=f"nvidia.com/gpu.clique={rack.clique(domain)}").items
        assert len(nodes) == 18
        for node in nodes:
            assert node.status.allocatable["nvidia.com/gpu"] == "4"
            assert node.metadata.labels["nvidia.com/gpu.product"] == "NVIDIA-GB200"
            assert "nvidia.com/gpu" in {taint.key for taint in node.spec.taints}


def test_scheduler_honours_the_clique(rack: Rack, namespace: str) -> None:
    create(rack, namespace, gpu_pod("p", nodeSelector={"nvidia.com/gpu.clique": rack.clique(1)}))
    wait("pod p is Ready", lambda: is_ready(rack, namespace, "p"), 30)
    assert (node_of(rack, namespace, "p") or "").startswith("d1-")


def test_scheduler_counts_gpus(make_rack: MakeRack) -> None:
    rack = make_rack(domains=1, nodes=1, gpus=4)
    create(rack, "default", gpu_pod("takes-three", 3))
    wait("the first pod is Ready", lambda: is_ready(rack, "default", "takes-three"), 30)
    create(rack, "default", gpu_pod("wants-two", 2))
    message = wait("the second is refused", lambda: unschedulable(rack, "default", "wants-two"), 30)
    assert "Insufficient nvidia.com/gpu" in message


def test_gated_pod_waits_for_its_gate(rack: Rack, namespace: str) -> None:
    create(rack, namespace, gpu_pod("p", schedulingGates=[{"name": "example.com/gate"}]))
    assert node_of(rack, namespace, "p") is None
    rack.kubectl(
        "patch", "pod", "p", "-n", namespace, "--type=json",
        "-p", json.dumps([{"op": "remove", "path": "/spec/schedulingGates/0"}]),
    )  # fmt: skip
    wait("pod p is Ready", lambda: is_ready(rack, namespace, "p"), 30)


def test_pod_security_is_restricted_everywhere(rack: Rack, namespace: str) -> None:
    privileged = gpu_pod("p")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    for where in ("default", "kube-system", namespace):
        with pytest.raises(CommandError, match='violates PodSecurity "restricted:latest"'):
            rack.kubectl("create", "-n", where, "-f", "-", stdin=json.dumps(privileged))


def test_audit_log_tells_users_apart(rack: Rack, namespace: str) -> None:
    before = len(rack.writes("kubernetes-admin"))
    rack.kubectl("create", "configmap", "c", "-n", namespace)
    rack.kubectl("get", "configmap", "c", "-n", namespace)
    new = rack.writes("kubernetes-admin")[before:]
    assert [(event["verb"], event["objectRef"]["name"]) for event in new] == [("create", "c")]


def test_service_account_has_its_own_rights_only(rack: Rack, namespace: str) -> None:
    kubeconfig = rack.kubeconfig_of(f"{namespace}/default")
    with pytest.raises(CommandError, match="cannot list resource"):
        rack.kubectl("get", "pods", "-n", namespace, f"--kubeconfig={kubeconfig}")


def test_knobs_are_undone_by_their_mirror_images(make_rack: MakeRack) -> None:
    rack = make_rack(domains=1, nodes=1, gpus=4)
    node = rack.node("d0-n00")
    create(rack, "default", gpu_pod("p", 1))
    wait("pod p is Ready", lambda: is_ready(rack, "default", "p"), 30)

    node.not_ready("False")
    node.ready()
    node.not_ready("Unknown")
    assert not is_ready(rack, "default", "p"), "the pods of a silent node are not Ready"
    node.ready()
    assert is_ready(rack, "default", "p")

    node.cordon()
    create(rack, "default", gpu_pod("q", 1))
    message = wait("a new pod is refused", lambda: unschedulable(rack, "default", "q"), 30)
    assert "unschedulable" in message
    node.uncordon()
    wait("it is placed", lambda: is_ready(rack, "default", "q"), 30)

    node.label("nvidia.com/gpu.clique", None)
    assert "nvidia.com/gpu.clique" not in rack.core.read_node("d0-n00").metadata.labels
    node.remove()
    node.add()
    assert rack.core.read_node("d0-n00").metadata.labels["nvidia.com/gpu.clique"] == rack.clique(0)


def test_held_pod_stays_pending(rack: Rack, namespace: str) -> None:
    held = gpu_pod("held")
    held["metadata"]["annotations"] = {"rack.afd.dev/hold": "true"}
    create(rack, namespace, held)
    create(rack, namespace, gpu_pod("free"))
    wait("the other pod is Ready", lambda: is_ready(rack, namespace, "free"), 30)
    wait("the held pod is bound", lambda: node_of(rack, namespace, "held"), 30)
    assert rack.core.read_namespaced_pod("held", namespace).status.phase == "Pending"
    rack.kubectl("annotate", "pod", "held", "-n", namespace, "rack.afd.dev/hold-")
    wait("it runs", lambda: is_ready(rack, namespace, "held"), 30)


def test_two_racks_at_a_time(make_rack: MakeRack) -> None:
    one, other = make_rack(domains=1, nodes=1), make_rack(domains=1, nodes=2)
    one.namespace("only-here")
    assert len(other.core.list_node().items) == 3
    assert "only-here" not in other.kubectl("get", "namespaces")
