"""The product with real containers: a unit on three nodes of one domain, answered through the gateway, and
every process of it killed in turn. Two lanes and one expert worker, one GPU a node, so that each loss has a
survivor beside it.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.prometheus import check_board, scraping
from tests.rack import Rack, images, rack
from tests.rack.clients import wait
from tests.rack.demo_cluster import CHART, OPERATOR_NAMESPACE, RELEASE, demo_manifest
from tests.rack.demo_rack import MODELS
from tests.rack.fixtures import unable
from tests.rack.host import problem

from afd_dashboards.unit import UNIT_BOARD
from afd_unit import labels, names

pytestmark = pytest.mark.e2e

NAMESPACE = "serving"
NAME = "demo"
READY_WITHIN_S = 240.0
PROMPT = "It is a truth universally acknowledged"
LANE_0, LANE_1 = "demo-0-attn-0", "demo-0-attn-1"
EXPERT, COORDINATOR = "demo-0-exp-0", "demo-0-coord"

Json = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """A rack with the operator and one deployment in it."""

    rack: Rack

    @property
    def deployment(self) -> Json:
        return json.loads(self.rack.kubectl("get", "afd", NAME, "-n", NAMESPACE, "-o", "json"))

    @property
    def ready(self) -> bool:
        """Ready by the condition, of the unit and of the gateway, now."""
        found = self.deployment
        conditions = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}
        return conditions.get("Ready") == "True"

    def pods(self) -> dict[str, Any]:
        """By name; the gateway's pod, whose name is made up, as `gateway`."""
        found = self.rack.core.list_namespaced_pod(NAMESPACE, label_selector=labels.DEPLOYMENT).items
        return {
            "gateway" if pod.metadata.name.startswith(names.gateway(NAME)) else pod.metadata.name: pod
            for pod in found
        }

    def lives(self) -> dict[str, tuple[str, int]]:
        """(uid, restarts) of each pod: what changes when a process of it dies."""
        return {
            name: (
                pod.metadata.uid,
                sum(status.restart_count for status in pod.status.container_statuses or ()),
            )
            for name, pod in self.pods().items()
        }

    def url(self) -> str:
        return f"http://{self.rack.core.read_namespaced_service(NAME, NAMESPACE).spec.cluster_ip}/v1"

    def complete(self) -> str:
        """A greedy answer: the same text every time."""
        client = OpenAI(base_url=self.url(), api_key="none", timeout=90, max_retries=5)
        answer = client.completions.create(model="afd/demo", prompt=PROMPT, max_tokens=24, temperature=0)
        return answer.choices[0].text

    def await_ready(self) -> None:
        wait(
            "the deployment is Ready", lambda: self.ready, READY_WITHIN_S,
            seen=lambda: json.dumps(self.deployment.get("status"), indent=1),
        )  # fmt: skip


def manifest(image: str) -> Json:
    found = demo_manifest(image)
    found["spec"]["ratio"] = {"attention": 2, "expert": 1}
    found["spec"]["placement"] = {"gpusPerNode": 1}
    return found


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    if trouble := problem(real_nodes=True):
        unable(trouble)
    operator = images.project("operator", extras="operator")
    runtime = images.project("runtime", extras="server")
    with rack(images=[operator, runtime], domains=1, nodes=3, gpus=1, real=3) as found:
        found.namespace(NAMESPACE)
        found.share_folder(NAMESPACE, "models", MODELS)
        found.share_folder(NAMESPACE, "site-packages", Path(sysconfig.get_paths()["platlib"]))
        repository, _, tag = operator.reference.rpartition(":")
        found.helm(
            "install", RELEASE, str(CHART), "--namespace", OPERATOR_NAMESPACE, "--create-namespace",
            "--set-string", f"image.repository={repository},image.tag={tag}", "--wait", "--timeout", "180s",
        )  # fmt: skip
        body = manifest(runtime.reference)
        body["metadata"]["namespace"] = NAMESPACE
        found.apply(body)
        made = Product(found)
        try:
            made.await_ready()
        except AssertionError as error:
            pytest.fail(f"{error}\n{found.describe(NAMESPACE)}", pytrace=False)
        yield made


def test_answers_from_one_clique(product: Product) -> None:
    """Both roles on nodes of one domain, and the answer is the model's."""
    pods = product.pods()
    placed = {name: pod.spec.node_name for name, pod in pods.items() if name != "gateway"}
    assert {LANE_0, LANE_1, EXPERT, COORDINATOR} == set(placed)
    assert len({placed[LANE_0], placed[LANE_1], placed[EXPERT]}) == 3
    domains = {product.rack.core.read_node(node).metadata.labels[labels.CLIQUE] for node in placed.values()}
    assert len(domains) == 1
    assert product.complete() == product.complete() != ""


@pytest.mark.parametrize(
    ("pod", "container"),
    [(LANE_0, "gpu-0"), (EXPERT, "gpu-0"), (COORDINATOR, "coordinator"), ("gateway", "gateway")],
    ids=["attention", "expert", "coordinator", "gateway"],
)
def test_kill_9_of_a_process(product: Product, pod: str, container: str) -> None:
    """The unit is Ready again without help and answers as before; nothing else was restarted."""
    product.await_ready()
    before, answer = product.lives(), product.complete()
    product.rack.kill_container(NAMESPACE, product.pods()[pod].metadata.name, container)

    def restarted() -> bool:
        return product.lives()[pod][1] == before[pod][1] + 1

    wait(f"the container of {pod} was restarted", restarted, 60.0)
    product.await_ready()
    assert product.complete() == answer
    after = product.lives()
    assert {name: life for name, life in after.items() if name != pod} == {
        name: life for name, life in before.items() if name != pod
    }


def test_kill_9_of_a_kubelet(product: Product) -> None:
    """The node's service manager brings it back; no container was restarted, the unit answers."""
    product.await_ready()
    before, answer = product.lives(), product.complete()
    node = product.rack.node(product.pods()[LANE_1].spec.node_name)
    node.kill_kubelet()
    assert product.complete() == answer
    node.await_ready("True")
    product.await_ready()
    assert product.lives() == before


def test_a_deleted_pod_is_replaced_in_the_same_domain(product: Product) -> None:
    product.await_ready()
    before, answer = product.lives(), product.complete()
    product.rack.kubectl("delete", "pod", LANE_1, "-n", NAMESPACE, "--wait=false")
    wait(
        "the pod is a new one",
        lambda: product.lives().get(LANE_1, before[LANE_1])[0] != before[LANE_1][0],
        60.0,
    )
    product.await_ready()
    assert product.complete() == answer
    assert product.lives()[LANE_0] == before[LANE_0]


def test_prometheus_has_data_for_every_query_of_the_board(product: Product, tmp_path: Path) -> None:
    """A real Prometheus scrapes the coordinator's and the gateway's pods."""
    product.await_ready()
    pods = product.pods()
    targets = [f"{pods[COORDINATOR].status.pod_ip}:7401", f"{pods['gateway'].status.pod_ip}:8000"]
    with scraping(targets, tmp_path) as url:

        def served() -> bool:
            product.complete()
            return not check_board(url, UNIT_BOARD, deployment=f"{NAMESPACE}/{NAME}")

        wait(
            "every query has data", served, 120.0,
            seen=lambda: str(check_board(url, UNIT_BOARD, deployment=f"{NAMESPACE}/{NAME}")),
        )  # fmt: skip


def test_deletion_leaves_nothing(product: Product) -> None:
    """Last in this file: the deployment goes, and with it everything that was made for it."""
    product.rack.kubectl("delete", "afd", NAME, "-n", NAMESPACE)

    def gone() -> bool:
        left = product.rack.kubectl(
            "get", "pods,services,configmaps,serviceaccounts,deployments", "-n", NAMESPACE,
            "-l", labels.DEPLOYMENT, "-o", "name",
        )  # fmt: skip
        leases = product.rack.kubectl("get", "leases", "-n", OPERATOR_NAMESPACE, "-o", "name")
        return not left.strip() and "afd-domain" not in leases

    wait("nothing is left", gone, 90.0, seen=lambda: product.rack.describe(NAMESPACE))
