"""What is read from API objects: nodes, GPUs that pods hold, taints, reservations."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afd_operator.placement.facts import Node, Occupant, UnitId, node_from_api, occupant_from_api
from afd_operator.placement.reservation import Holder, Reservation, from_lease, lease_name, to_lease
from afd_operator.placement.scheduling import Taint, Toleration, tolerated

LEGAL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def test_a_node_with_everything() -> None:
    body = {
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.clique": "c.1"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule", "value": "v"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "4", "cpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
        },
    }
    assert node_from_api(body) == Node(
        "n", {"nvidia.com/gpu.clique": "c.1"}, True, False, 4, (Taint("k", "NoSchedule", "v"),)
    )


def test_a_node_that_has_just_been_created_is_not_ready_and_has_no_gpu() -> None:
    assert node_from_api({"metadata": {"name": "n"}}) == Node("n", {}, False, True, 0)


def pod(
    *containers: int, init: tuple[int, ...] = (), sidecars: tuple[int, ...] = (), **spec: Any
) -> dict[str, Any]:
    def container(gpus: int) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}

    return {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n",
            "containers": [container(g) for g in containers],
            "initContainers": [container(g) for g in init]
            + [container(g) | {"restartPolicy": "Always"} for g in sidecars],
            **spec,
        },
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    ("body", "gpus"),
    [
        pytest.param(pod(1, 1, 1, 1), 4, id="containers run together: they add"),
        pytest.param(pod(1, init=(2, 3)), 3, id="init containers run one by one: the largest"),
        pytest.param(pod(1, sidecars=(1,), init=(1,)), 2, id="a sidecar stays"),
        pytest.param(pod(0), 0, id="asks for none"),
        pytest.param(pod(4, nodeName=None), 0, id="not bound"),
        pytest.param(pod(4) | {"status": {"phase": "Failed"}}, 0, id="finished"),
        pytest.param(pod(4) | {"status": {}}, 4, id="bound a moment ago"),
    ],
)
def test_gpus_of_a_pod(body: dict[str, Any], gpus: int) -> None:
    assert occupant_from_api(body) == (Occupant("n", gpus, None) if gpus else None)


def test_a_pod_of_ours_says_which_unit_it_is_of() -> None:
    body = pod(4)
    body["metadata"]["labels"] = {"afd.dev/deployment-uid": "u", "afd.dev/unit": "3"}
    occupant = occupant_from_api(body)
    assert occupant is not None
    assert occupant.unit == UnitId("u", 3)


@pytest.mark.parametrize(
    ("toleration", "taint", "result"),
    [
        (Toleration(operator="Exists"), Taint("any", "NoExecute"), True),
        (Toleration(key="k", operator="Exists"), Taint("k", "NoSchedule", "v"), True),
        (Toleration(key="k", operator="Exists"), Taint("other", "NoSchedule"), False),
        (Toleration(key="k", value="v"), Taint("k", "NoSchedule", "v"), True),
        (Toleration(key="k", value="w"), Taint("k", "NoSchedule", "v"), False),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), Taint("k", "NoSchedule"), False),
        (Toleration(value="v"), Taint("k", "NoSchedule", "v"), False),
    ],
)
def test_tolerations(toleration: Toleration, taint: Taint, result: bool) -> None:
    assert tolerated([taint], [toleration]) is result


label_values = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)


@given(label_values, label_values, label_values)
def test_a_lease_name_is_legal_and_names_one_domain_of_one_key(domain: str, other: str, key: str) -> None:
    name = lease_name(key, domain)
    assert LEGAL_NAME.fullmatch(name)
    assert len(name) <= 63
    assert (name == lease_name(key, other)) == (domain == other)
    assert name != lease_name(f"{key}x", domain)


@given(label_values, st.integers(0, 999))
def test_a_reservation_survives_the_lease(domain: str, unit: int) -> None:
    holder = Holder("ns", "n" * 253, UnitId("uid", unit))
    lease = to_lease("topology.example/rack", domain, holder, "afd-system")
    lease["metadata"]["uid"] = "lease-uid"
    assert from_lease(lease) == Reservation(
        "topology.example/rack", domain, holder, lease["metadata"]["name"], "lease-uid"
    )


def test_a_lease_without_what_identifies_it_is_no_reservation() -> None:
    assert from_lease({"metadata": {"name": "x", "uid": "u"}}) is None
