"""What the children of a deployment look like. Whether the API server takes them is tested on a real one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.resources.samples import deployment

from afd_operator.resources.gateway import gateway
from afd_operator.resources.pods import Place, places, pod_name, unit_pod
from afd_operator.resources.services import account, client_service, coordinator_service, coordinators_service
from afd_operator.resources.unit_config import unit_config
from afd_unit import unitfile
from afd_unit.identity import Role

Json = dict[str, Any]

DOMAIN = "7d1c.1"
LONGEST = "a" * 253
AWKWARD = "9.qwen3-235b.prod" + ".x" * 60
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def unit_pods(name: str = "demo", **spec: Any) -> dict[str, Json]:
    found = deployment(name, **spec)
    bodies = [unit_pod(found, 0, place, DOMAIN) for place in places(found.spec)]
    return {body["metadata"]["name"]: body for body in bodies}


def children(name: str = "demo", **spec: Any) -> list[Json]:
    found = deployment(name, **spec)
    return [
        *unit_pods(name, **spec).values(),
        unit_config(found, 0, DOMAIN, "afd-system/afd-operator"),
        account(found),
        coordinator_service(found, 0),
        coordinators_service(found),
        client_service(found),
        gateway(found),
    ]


def pod_specs(name: str = "demo", **spec: Any) -> list[Json]:
    front = gateway(deployment(name, **spec))["spec"]["template"]
    return [pod["spec"] for pod in (*unit_pods(name, **spec).values(), front)]


def env(container: Json) -> dict[str, Any]:
    return {v["name"]: v.get("value", v.get("valueFrom")) for v in container["env"]}


def test_a_unit_is_one_pod_per_node_and_a_coordinator() -> None:
    assert list(unit_pods(ratio={"attention": 2, "expert": 1})) == [
        "demo-0-attn-0",
        "demo-0-attn-1",
        "demo-0-exp-0",
        "demo-0-coord",
    ]


def test_a_worker_pod_has_a_container_per_gpu_and_each_knows_its_place() -> None:
    pod = unit_pods(ratio={"attention": 1, "expert": 2}, placement={"gpusPerNode": 4})["demo-0-exp-1"]
    workers = pod["spec"]["containers"]
    assert [c["name"] for c in workers] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert {tuple(c["command"]) for c in workers} == {("afd", "worker", "expert")}
    assert [(env(c)["AFD_POD_INDEX"], env(c)["AFD_DEVICE"]) for c in workers] == [
        ("1", "0"), ("1", "1"), ("1", "2"), ("1", "3"),
    ]  # fmt: skip
    assert {c["resources"]["limits"]["nvidia.com/gpu"] for c in workers} == {"1"}


def test_ports_and_port_names_of_a_pod_do_not_collide() -> None:
    pod = unit_pods(placement={"gpusPerNode": 16})["demo-0-exp-0"]
    declared = [port for c in pod["spec"]["containers"] for port in c["ports"]]
    assert len({p["containerPort"] for p in declared}) == len({p["name"] for p in declared}) == 32
    assert all(len(p["name"]) <= 15 for p in declared)


def test_probes_ask_the_process_of_their_own_container() -> None:
    pod = unit_pods()["demo-0-attn-0"]
    for container in pod["spec"]["containers"]:
        declared = {p["containerPort"] for p in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] in declared


def test_the_coordinator_asks_for_no_gpu() -> None:
    (container,) = unit_pods()["demo-0-coord"]["spec"]["containers"]
    assert "limits" not in container["resources"]


@pytest.mark.parametrize("name", sorted(unit_pods()))
def test_every_pod_of_a_unit_is_gated_and_kept_to_the_domain(name: str) -> None:
    spec = unit_pods(runtime={"podTemplate": {"spec": {"nodeSelector": {"pool": "gb200"}}}})[name]["spec"]
    assert spec["schedulingGates"] == [{"name": "afd.dev/placement"}]
    assert spec["nodeSelector"] == {"pool": "gb200", "nvidia.com/gpu.clique": DOMAIN}


@pytest.mark.parametrize("name", sorted(unit_pods()))
def test_no_container_of_a_unit_starts_without_the_units_config_map(name: str) -> None:
    spec = unit_pods()[name]["spec"]
    (volume,) = (v for v in spec["volumes"] if "configMap" in v)
    assert volume["configMap"]["name"] == "demo-0"
    assert not volume["configMap"].get("optional")
    for container in spec["containers"]:
        assert volume["name"] in {m["name"] for m in container["volumeMounts"]}


def test_the_gateway_is_not_bound_to_a_unit() -> None:
    spec = gateway(deployment())["spec"]["template"]["spec"]
    assert not [v for v in spec["volumes"] if "configMap" in v]
    assert "schedulingGates" not in spec
    assert env(spec["containers"][0])["AFD_COORDINATORS"] == "demo-coords.prod.svc:7400"


def test_the_unit_file_says_what_the_unit_is() -> None:
    found = deployment(ratio={"attention": 7, "expert": 1}, placement={"gpusPerNode": 4}, microbatches=3)
    file = unitfile.decode(unit_config(found, 2, DOMAIN, "afd-system/op")["data"]["unit.json"])
    assert (file.deployment, file.unit, file.domain) == ("prod/demo", 2, DOMAIN)
    assert (file.attention_workers, file.expert_workers, file.microbatches) == (28, 4, 3)
    assert file.coordinator == "demo-2-coord.prod.svc:7400"
    assert (file.auth.service_account, file.auth.status_reader) == ("prod/demo", "afd-system/op")


def test_the_model_is_mounted_read_only_from_the_folder_of_the_claim() -> None:
    pod = unit_pods(model={"id": "m", "source": "pvc://claim/sub/path"})["demo-0-attn-0"]["spec"]
    (volume,) = (v for v in pod["volumes"] if "persistentVolumeClaim" in v)
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
    assert volume["persistentVolumeClaim"] == {"claimName": "claim", "readOnly": True}
    assert (mount["subPath"], mount["readOnly"]) == ("sub/path", True)


def test_a_claim_without_a_folder_is_mounted_at_its_root() -> None:
    pod = unit_pods(model={"id": "m", "source": "pvc://claim"})["demo-0-attn-0"]["spec"]
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == "/model")
    assert "subPath" not in mount


@pytest.mark.parametrize("spec", pod_specs(), ids=lambda s: s["containers"][0]["command"][-1])
def test_every_pod_passes_pod_security_restricted(spec: Json) -> None:
    """The checks of the standard that a pod can fail by what it leaves out."""
    security = spec["securityContext"]
    assert security["runAsNonRoot"]
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec["automountServiceAccountToken"]
    allowed = {"configMap", "emptyDir", "projected", "persistentVolumeClaim"}
    assert all(set(v) - {"name"} <= allowed for v in spec["volumes"])
    for container in spec["containers"]:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_only_the_coordinator_gets_a_token_for_the_api_server() -> None:
    def audiences(spec: Json) -> list[str | None]:
        (volume,) = (v for v in spec["volumes"] if "projected" in v)
        sources = volume["projected"]["sources"]
        return [s["serviceAccountToken"].get("audience") for s in sources if "serviceAccountToken" in s]

    found = {s["containers"][0]["command"][-1]: audiences(s) for s in pod_specs()}
    assert found == {
        "attention": ["afd"],
        "expert": ["afd"],
        "coordinator": ["afd", None],
        "gateway": ["afd"],
    }


def test_gpu_nodes_are_tolerated_and_what_the_template_tolerates() -> None:
    mine = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}
    for spec in pod_specs(runtime={"podTemplate": {"spec": {"tolerations": [mine]}}}):
        assert spec["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            mine,
        ]


def test_the_template_adds_to_containers_by_kind() -> None:
    template = {
        "metadata": {"labels": {"team": "ml"}, "annotations": {"note": "x"}},
        "spec": {
            "volumes": [{"name": "site", "persistentVolumeClaim": {"claimName": "torch"}}],
            "terminationGracePeriodSeconds": 90,
            "priorityClassName": "high",
            "containers": [
                {
                    "name": "worker",
                    "env": [{"name": "PYTHONPATH", "value": "/site"}, {"name": "HOME", "value": "/x"}],
                    "volumeMounts": [{"name": "site", "mountPath": "/site", "readOnly": True}],
                    "resources": {"limits": {"memory": "4Gi"}},
                },
                {"name": "gateway", "env": [{"name": "LOG", "value": "debug"}]},
            ],
        },
    }  # fmt: skip
    pods = unit_pods(runtime={"podTemplate": template})
    worker, coordinator = pods["demo-0-attn-0"], pods["demo-0-coord"]
    assert worker["metadata"]["labels"]["team"] == "ml"
    assert worker["metadata"]["annotations"]["note"] == "x"
    assert worker["spec"]["terminationGracePeriodSeconds"] == 90
    assert worker["spec"]["priorityClassName"] == "high"
    container = worker["spec"]["containers"][1]
    assert env(container)["PYTHONPATH"] == "/site"
    assert [v for v in container["env"] if v["name"] == "HOME"] == [{"name": "HOME", "value": "/x"}]
    assert {"name": "site", "mountPath": "/site", "readOnly": True} in container["volumeMounts"]
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"]["memory"] == "4Gi"
    assert "PYTHONPATH" not in env(coordinator["spec"]["containers"][0])
    front = gateway(deployment(runtime={"podTemplate": template}))["spec"]["template"]
    assert env(front["spec"]["containers"][0])["LOG"] == "debug"


@pytest.mark.parametrize("name", ["demo", LONGEST, AWKWARD, "1", "a-b.c"])
def test_names_and_labels_are_legal_for_every_legal_name(name: str) -> None:
    for body in children(name):
        metadata = body["metadata"]
        assert LABEL.fullmatch(metadata["name"]), metadata["name"]
        assert all(len(value) <= 63 for value in metadata["labels"].values())
        assert metadata["annotations"]["afd.dev/deployment-name"] == name
        assert metadata["ownerReferences"][0]["name"] == name


def test_every_child_is_controlled_by_its_deployment() -> None:
    for body in children():
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-demo", True)


def test_services_select_the_pods_that_they_are_for() -> None:
    found = deployment()
    coordinator = unit_pods()["demo-0-coord"]["metadata"]["labels"]
    front = gateway(found)["spec"]["template"]["metadata"]["labels"]
    for service, labels, others in [
        (coordinator_service(found, 0), coordinator, [front]),
        (coordinators_service(found), coordinator, [front]),
        (client_service(found), front, [coordinator]),
    ]:
        selector = service["spec"]["selector"].items()
        assert selector <= labels.items()
        assert not any(selector <= other.items() for other in others)


def test_place_names_follow_the_contract() -> None:
    assert pod_name("demo", 3, Place(Role.COORDINATOR, 0)) == "demo-3-coord"
