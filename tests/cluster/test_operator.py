"""The operator against a real API server, controller manager and scheduler: what users see."""

from __future__ import annotations

import json
import signal
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operators import WITHIN_S, Home, Operator, afd, install
from tests.rack import Rack
from tests.rack.clients import wait
from tests.rack.fixtures import shared_rack

pytestmark = pytest.mark.cluster

rack = shared_rack(domains=2, nodes=3, gpus=4)


@pytest.fixture(scope="module")
def home(rack: Rack) -> Home:
    return install(rack)


@pytest.fixture(scope="module")
def operator(home: Home) -> Iterator[Operator]:
    with home.operator() as running:
        yield running


@pytest.fixture
def prod(home: Home, operator: Operator) -> Iterator[str]:
    """A namespace; at the end its deployments are deleted, and that must free every domain."""
    name = home.namespace(f"prod-{uuid.uuid4().hex[:6]}")
    yield name
    home.rack.kubectl("delete", "afd", "--all", "-n", name)
    wait("all domains are free", lambda: not home.domains(), WITHIN_S, lambda: str(home.domains()))
    wait("no pod is left", lambda: not home.pods(name, unit=False), WITHIN_S)
    left = home.rack.kubectl("get", "svc,cm,sa,deploy", "-n", name, "-l", "afd.dev/deployment", "-o", "name")
    assert left == ""


def test_both_roles_of_a_unit_are_in_one_clique(home: Home, prod: str, operator: Operator) -> None:
    home.rack.apply(afd("demo", prod, ratio={"attention": 2, "expert": 1}))
    home.await_condition("demo", prod, "Ready", "True", "UnitsServe")
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in home.pods(prod)}
    assert set(nodes) == {"demo-0-attn-0", "demo-0-attn-1", "demo-0-exp-0", "demo-0-coord"}
    assert len({home.domain_of(node) for node in nodes.values()}) == 1
    home.check(prod)
    assert home.writes_at_rest(operator, "demo", prod) == []


def test_a_second_gets_another_domain_a_third_waits_and_gets_in_when_the_first_goes(
    home: Home, prod: str
) -> None:
    home.rack.apply(afd("first", prod), afd("second", prod))
    for name in ("first", "second"):
        home.await_condition(name, prod, "Ready", "True")
    home.rack.apply(afd("third", prod))
    home.await_condition("third", prod, "DomainSelected", "False", "WaitingForDomain")
    message = json.dumps(home.get("third", prod)["status"]["conditions"])
    assert f"is held by {prod}/first/0" in message
    assert f"is held by {prod}/second/0" in message
    assert not [p for p in home.pods(prod, unit=False) if p["metadata"]["name"].startswith("third")]
    home.check(prod)

    home.rack.kubectl("delete", "afd", "first", "-n", prod)
    home.await_condition("third", prod, "Ready", "True", "UnitsServe")
    home.check(prod)


def test_two_created_at_the_same_instant_get_two_domains(home: Home, prod: str) -> None:
    manifests = [json.dumps(afd(name, prod)) for name in ("left", "right")]
    both = [
        threading.Thread(target=lambda text=text: home.rack.kubectl("create", "-f", "-", stdin=text))
        for text in manifests
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    for name in ("left", "right"):
        home.await_condition(name, prod, "Ready", "True")
        home.check(prod)
    assert sorted(home.domains().values()) == [f"{prod}/left/0", f"{prod}/right/0"]


def test_kubectl_wait_scale_and_delete_work_as_for_a_deployment(home: Home, prod: str) -> None:
    kubectl = home.rack.kubectl
    home.rack.apply(afd("demo", prod))
    kubectl("wait", "--for=condition=Ready", "afd/demo", "-n", prod, "--timeout=60s")
    assert kubectl("get", "afd", "demo", "-n", prod, "--no-headers").split()[:3] == ["demo", "1/1", "1:1"]

    kubectl("scale", "afd", "demo", "-n", prod, "--replicas=2")
    kubectl("wait", "--for=jsonpath={.status.ready}=2/2", "afd/demo", "-n", prod, "--timeout=60s")
    scale = json.loads(
        kubectl("get", "--raw", f"/apis/afd.dev/v1alpha1/namespaces/{prod}/afddeployments/demo/scale")
    )
    assert scale["status"]["replicas"] == 2
    pods = kubectl("get", "pods", "-n", prod, "-l", scale["status"]["selector"], "-o", "name").split()
    assert len(pods) == 6

    kubectl("scale", "afd", "demo", "-n", prod, "--replicas=1")
    wait("one domain is given back", lambda: len(home.domains()) == 1, WITHIN_S)
    assert {p["metadata"]["labels"]["afd.dev/unit"] for p in home.pods(prod)} == {"0"}

    kubectl("delete", "afd", "demo", "-n", prod, "--cascade=foreground", "--timeout=60s")
    assert home.pods(prod) == []


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        pytest.param(
            {"ratio": {"attention": 3, "expert": 1}}, "NoDomainLargeEnough", "needs 4 nodes", id="too large"
        ),
        pytest.param(
            {"model": {"source": "s3://bucket/key"}},
            "SpecNotActedOn",
            "spec.model.source",
            id="unknown source",
        ),
        pytest.param(
            {"model": {"source": "pvc://typo/x"}},
            "ModelNotFound",
            "PersistentVolumeClaim",
            id="no such claim",
        ),
        pytest.param(
            {"runtime": {"backend": "sglang"}}, "SpecNotActedOn", "spec.runtime.backend", id="other backend"
        ),
    ],
)
def test_what_cannot_be_done_ends_in_a_condition_and_no_pod_runs(
    home: Home, prod: str, spec: dict[str, object], reason: str, words: str
) -> None:
    home.rack.apply(afd("bad", prod, **spec))
    home.await_condition("bad", prod, "Stalled", "True", reason)
    assert home.condition("bad", prod, "Ready") == ("False", reason)
    assert words in json.dumps(home.get("bad", prod)["status"]["conditions"])
    assert home.pods(prod, unit=False) == []
    assert home.domains() == {}


def test_a_quota_that_holds_back_part_of_a_unit_starts_nothing(home: Home, prod: str) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    home.rack.core.create_namespaced_resource_quota(prod, quota)
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "Stalled", "True", "Forbidden")
    assert "exceeded quota" in json.dumps(home.get("demo", prod)["status"]["conditions"])
    assert not [pod for pod in home.pods(prod) if pod["spec"].get("nodeName")]
    home.check(prod)
    home.rack.core.delete_namespaced_resource_quota("few", prod)
    home.await_condition("demo", prod, "Ready", "True")


def test_an_object_of_somebody_else_is_not_taken_over(home: Home, prod: str) -> None:
    theirs = {"metadata": {"name": "demo"}, "spec": {"ports": [{"port": 5432}], "selector": {"app": "db"}}}
    home.rack.core.create_namespaced_service(prod, theirs)
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "Stalled", "True", "NameTaken")
    service = home.rack.core.read_namespaced_service("demo", prod)
    assert service.spec.selector == {"app": "db"}
    assert not service.metadata.owner_references
    home.rack.core.delete_namespaced_service("demo", prod)
    home.await_condition("demo", prod, "Ready", "True")


PROBE_SPEC = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "c",
            "image": "none",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


def gating_policy(namespace: str, gate: str) -> list[dict[str, Any]]:
    """What a queueing system's webhook does, without a server: a gate for every new pod of a namespace."""
    add = f'[JSONPatch{{op: "add", path: "/spec/schedulingGates/-", value: {{"name": "{gate}"}}}}]'
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": f"gates-of-{namespace}"},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ],
                },
                "matchConditions": [{"name": "gated", "expression": "has(object.spec.schedulingGates)"}],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": add}}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": f"gates-of-{namespace}"},
            "spec": {"policyName": f"gates-of-{namespace}"},
        },
    ]


def test_gates_of_others_are_left_alone(home: Home, prod: str) -> None:
    home.rack.apply(*gating_policy(prod, "example.com/queue"))
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {**PROBE_SPEC, "schedulingGates": [{"name": "example.com/other"}]},
    }

    def in_force() -> bool:
        found = home.rack.core.create_namespaced_pod(prod, probe, dry_run="All")
        return len(found.spec.scheduling_gates) == 2

    wait("the policy is in force", in_force, WITHIN_S)
    home.rack.apply(afd("demo", prod))

    def gates() -> list[list[str]]:
        return [[gate["name"] for gate in pod["spec"].get("schedulingGates", [])] for pod in home.pods(prod)]

    wait(
        "our gate is lifted from all pods, the other is not",
        lambda: gates() == [["example.com/queue"]] * 3,
        WITHIN_S,
        lambda: str(gates()),
    )
    assert home.config_maps(prod) == [], "started although pods wait at somebody's gate"


def test_the_longest_and_the_strangest_names_work(home: Home, prod: str) -> None:
    for name in ("a" * 253, "9.qwen3-235b.prod"):
        home.rack.apply(afd(name, prod))
        home.await_condition(name, prod, "Ready", "True")
        home.check(prod)


def test_a_lost_pod_is_replaced_and_the_others_stay(home: Home, prod: str) -> None:
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "Ready", "True")
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in home.pods(prod)}
    home.rack.core.delete_namespaced_pod("demo-0-exp-0", prod)

    def replaced() -> dict[str, str]:
        """All pods that are Ready, once that is all of them and one is new."""
        found = {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in home.pods(prod)
            if any(
                c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
            )
        }
        return found if set(found) == set(before) and found != before else {}

    after = wait("the pod is replaced", replaced, WITHIN_S)
    assert {name for name, uid in after.items() if uid != before[name]} == {"demo-0-exp-0"}
    home.await_condition("demo", prod, "Ready", "True")


def test_a_new_image_replaces_the_unit_whole(home: Home, prod: str, operator: Operator) -> None:
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "Ready", "True")
    home.rack.apply(afd("demo", prod, runtime={"image": "afd:next"}))

    def images() -> set[str]:
        return {c["image"] for p in home.pods(prod) for c in p["spec"]["containers"]}

    wait("all pods are new", lambda: images() == {"afd:next"} and len(home.pods(prod)) == 3, WITHIN_S)
    home.await_condition("demo", prod, "Ready", "True")
    home.check(prod)
    assert home.writes_at_rest(operator, "demo", prod) == []


def test_a_cordoned_domain_is_waited_for(home: Home, prod: str) -> None:
    nodes = [node.name for node in home.rack.nodes if node.domain is not None]
    for node in nodes:
        home.rack.node(node).cordon()
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "DomainSelected", "False", "WaitingForDomain")
    for node in nodes:
        home.rack.node(node).uncordon()
    home.await_condition("demo", prod, "Ready", "True")


def test_a_changed_child_is_put_right(home: Home, prod: str) -> None:
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "Ready", "True")
    home.rack.core.delete_namespaced_service("demo", prod)
    home.rack.core.patch_namespaced_service(
        "demo-coords", prod, {"spec": {"publishNotReadyAddresses": False}}
    )

    def services() -> dict[str, bool]:
        found = home.rack.core.list_namespaced_service(prod).items
        return {s.metadata.name: bool(s.spec.publish_not_ready_addresses) for s in found}

    wait(
        "both are right again",
        lambda: services().get("demo-coords") and "demo" in services(),
        WITHIN_S,
        lambda: str(services()),
    )


def test_one_of_twenty_is_invalid_and_the_others_do_not_notice(
    home: Home, prod: str, operator: Operator
) -> None:
    """Nothing waits for anything: two get a domain, seventeen are told that they wait, one why it cannot."""
    errors = operator.errors()
    names = [f"d{i:02d}" for i in range(19)]
    home.rack.apply(*(afd(name, prod) for name in names), afd("bad", prod, runtime={"backend": "sglang"}))
    home.await_condition("bad", prod, "Stalled", "True", "SpecNotActedOn")

    def answers() -> list[str]:
        return sorted(home.condition(name, prod, "Ready")[1] for name in names)

    wait(
        "all are served or told why not",
        lambda: answers() == ["UnitsServe"] * 2 + ["WaitingForDomain"] * 17,
        WITHIN_S,
        lambda: str(answers()),
    )
    home.check(prod)
    assert operator.errors() == errors


def test_the_end_comes_within_five_seconds_and_the_next_starts_at_once(home: Home, prod: str) -> None:
    home.rack.apply(afd("demo", prod))
    home.await_condition("demo", prod, "Ready", "True")
    with home.operator() as second:
        # Two processes of one identity share the Lease, as a restarted one takes over its own.
        wait("it leads", lambda: second.metric("afd_operator_leader") == 1, WITHIN_S)
        before = home.writes()
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(5) == 0
        assert [w for w in home.writes() if w not in before] == []
