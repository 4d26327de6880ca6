"""The chart at a real API server: lint, server-side dry run of every rendering, a release's whole life."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.published import allowed, await_api, await_right
from tests.rack import CommandError, Rack
from tests.rack.fixtures import MakeRack
from tests.unit.chart.values_table import CHART

from afd_operator.api import crd

pytestmark = pytest.mark.cluster

NAMESPACE = "afd-chart"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:afd-operator"
RESTRICTED = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
"""`warn` judges the Deployment as well, not only pods."""
WORKLOADS = ["afd-team-a", "afd-team-b"]

DEFAULTS: dict[str, Any] = {}
NAMESPACED: dict[str, Any] = {"watchNamespaces": WORKLOADS, "crds": {"install": False}, "replicas": 2}
MONITORED: dict[str, Any] = {
    "serviceMonitor": {"enabled": True, "renderMode": "alwaysRender", "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "AFD"}},
}
DRESSED: dict[str, Any] = {
    "fullnameOverride": "afd", "commonLabels": {"team": "inference"}, "runAsUser": None,
    "image": {"repository": "registry.example.com:5000/afd", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}], "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"}, "podLabels": {"tier": "control"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-cluster-critical",
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "service": {"annotations": {"prometheus.io/scrape": "true"}},
}  # fmt: skip
BARE: dict[str, Any] = {
    "crds": {"keep": False}, "rbac": {"aggregate": False}, "resources": {"requests": None, "limits": None},
    "serviceAccount": {"create": False, "name": "default"},
}  # fmt: skip
RENDERINGS = {"defaults": DEFAULTS, "namespaced": NAMESPACED, "dressed": DRESSED, "bare": BARE}
WITH_OTHERS_CRDS = {**RENDERINGS, "monitored": MONITORED}
"""`monitored` has a ServiceMonitor, which this API server does not know."""


@pytest.fixture(scope="module")
def cluster(rack: Rack) -> Iterator[Rack]:
    """The rack with namespaces that the chart installs into; all enforce Pod Security `restricted`."""
    for name in (NAMESPACE, *WORKLOADS):
        rack.namespace(name)
        rack.kubectl("label", "namespace", name, *RESTRICTED)
    yield rack
    for name in (NAMESPACE, *WORKLOADS):
        rack.core.delete_namespace(name)


@pytest.fixture
def values(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The test's values as a file for helm."""
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(request.param))
    return str(path)


def render(rack: Rack, *arguments: str, release: str = "afd-operator") -> list[dict[str, Any]]:
    out = rack.helm("template", release, str(CHART), "--namespace", NAMESPACE, *arguments)
    return [manifest for manifest in yaml.safe_load_all(out) if manifest]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pod_spec(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (deployment,) = of_kind(manifests, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("values", WITH_OTHERS_CRDS.values(), ids=WITH_OTHERS_CRDS, indirect=True)
def test_lint_strict(cluster: Rack, values: str) -> None:
    cluster.helm("lint", "--strict", str(CHART), "--values", values)


@pytest.mark.parametrize("values", RENDERINGS.values(), ids=RENDERINGS, indirect=True)
def test_the_api_server_takes_every_object_without_a_warning(cluster: Rack, values: str) -> None:
    manifests = render(cluster, "--values", values)
    text = yaml.safe_dump_all(manifests)
    cluster.kubectl("apply", "--dry-run=server", "--warnings-as-errors", "-f", "-", stdin=text)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 2}, "replica"),
        ({"image": {"repo": "x"}}, "repo"),
        ({"replicas": 0}, "replicas"),
        ({"watchNamespaces": ["Team_A"]}, "watchNamespaces"),
        ({"serviceMonitor": {"renderMode": "perhaps"}}, "renderMode"),
        ({"runAsUser": 0}, "runAsUser"),
        ({"image": {"digest": "sha256:abc"}}, "digest"),
    ],
    indirect=["values"],
)
def test_a_wrong_value_is_refused_by_name(cluster: Rack, values: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        render(cluster, "--values", values)


def test_an_account_that_is_not_created_must_be_named(cluster: Rack) -> None:
    with pytest.raises(CommandError, match=r"serviceAccount\.name is required"):
        render(cluster, "--set", "serviceAccount.create=false")


def test_the_pod_is_restricted_and_knows_who_it_is(cluster: Rack) -> None:
    spec = pod_spec(render(cluster))
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [variable["name"] for variable in container["env"]] == [
        "POD_NAME", "POD_NAMESPACE", "POD_SERVICE_ACCOUNT", "AFD_TOKEN_FILE",
    ]  # fmt: skip
    assert container["command"] + container["args"] == ["afd", "operator"]
    token = spec["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"]
    assert (token["audience"], token["path"]) == ("afd", "token")


@pytest.mark.parametrize("values", [NAMESPACED], indirect=True)
def test_watched_namespaces_confine_all_writing(cluster: Rack, values: str) -> None:
    manifests = render(cluster, "--values", values)
    assert pod_spec(manifests)["containers"][0]["args"] == [
        "operator",
        *(f"--watch-namespace={name}" for name in WORKLOADS),
    ]
    (cluster_role,) = (r for r in of_kind(manifests, "ClusterRole") if "aggregate" not in str(r["metadata"]))
    verbs = {verb for rule in cluster_role["rules"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch"}
    written = {role["metadata"]["namespace"] for role in of_kind(manifests, "Role")}
    assert written == {NAMESPACE, *WORKLOADS}
    assert not of_kind(manifests, "CustomResourceDefinition")


def test_no_right_is_wider_than_it_looks(cluster: Rack) -> None:
    """No wildcard, no Secret, no right to hand out rights."""
    manifests = render(cluster)
    rules = [
        rule
        for role in (*of_kind(manifests, "ClusterRole"), *of_kind(manifests, "Role"))
        for rule in role["rules"]
    ]
    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
    assert not {"secrets", "roles", "rolebindings", "clusterroles"} & {
        r for rule in rules for r in rule["resources"]
    }


@pytest.mark.parametrize("values", [MONITORED], indirect=True)
def test_monitoring_is_rendered_when_asked_for(cluster: Rack, values: str) -> None:
    manifests = render(cluster, "--values", values)
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    (service,) = of_kind(manifests, "Service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    (boards,) = of_kind(manifests, "ConfigMap")
    assert boards["metadata"]["annotations"] == {"grafana_folder": "AFD"}
    assert all(json.loads(text)["title"] for text in boards["data"].values())


def test_monitoring_is_left_out_or_refused_where_its_crd_is_missing(cluster: Rack) -> None:
    assert not of_kind(render(cluster, "--set", "serviceMonitor.enabled=true"), "ServiceMonitor")
    with pytest.raises(CommandError, match="does not have monitoring"):
        render(cluster, "--set", "serviceMonitor.enabled=true,serviceMonitor.renderMode=failIfMissing")


@pytest.mark.parametrize("release", ["x", "afd-operator", "a" * 53])
def test_names_and_labels_are_legal_for_every_release_name(cluster: Rack, release: str) -> None:
    text = yaml.safe_dump_all(render(cluster, release=release))
    cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)


def test_two_releases_do_not_share_a_cluster_wide_name(cluster: Rack) -> None:
    def names(namespace: str) -> set[str]:
        out = cluster.helm("template", "afd-operator", str(CHART), "--namespace", namespace)
        found = [manifest for manifest in yaml.safe_load_all(out) if manifest]
        return {
            m["metadata"]["name"]
            for m in (*of_kind(found, "ClusterRole"), *of_kind(found, "ClusterRoleBinding"))
        }

    assert not names("one") & names("two")


def test_a_release_comes_with_true_notes_and_goes(make_rack: MakeRack) -> None:
    """Install, upgrade, uninstall: the CRD stays with what depends on it, everything else goes."""
    own = make_rack(domains=1, nodes=1, gpus=4)
    release = ["afd-operator", str(CHART), "--namespace", NAMESPACE]
    notes = own.helm("install", *release, "--create-namespace")
    await_api(own)
    for line in notes.splitlines():
        if line.strip().startswith(("kubectl get", "kubectl explain")):
            own.kubectl(*line.removesuffix("--watch").split()[1:])
    manifest = notes.split("-f - <<EOF\n")[1].split("\n  EOF")[0]
    example = manifest.replace("<your image of runtime/Containerfile>", "afd-runtime:dev")
    own.kubectl("apply", "--dry-run=server", "-n", "default", "-f", "-", stdin=example)

    own.helm("upgrade", *release, "--set", "replicas=2")
    assert own.kubectl("get", "deploy", "-n", NAMESPACE, "-o", "jsonpath={..spec.replicas}") == "2"

    own.helm("uninstall", "afd-operator", "--namespace", NAMESPACE, "--wait")
    left = own.kubectl("get", "deploy,sa,svc,role,rolebinding,clusterrole", "-n", NAMESPACE, "-o", "name")
    assert [name for name in left.split() if "afd" in name] == []
    assert crd.NAME in own.kubectl("get", "crd", "-o", "name")


@pytest.fixture
def rights(cluster: Rack) -> Iterator[Rack]:
    """The rack with the chart's account, roles and bindings, and nothing else of it."""
    kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    text = yaml.safe_dump_all(manifest for manifest in render(cluster) if manifest["kind"] in kinds)
    cluster.kubectl("apply", "-f", "-", stdin=text)
    await_right(cluster, ACCOUNT, "list nodes")
    yield cluster
    cluster.kubectl("delete", "-f", "-", stdin=text)


def test_the_operator_may_do_its_work_and_nothing_beside_it(rights: Rack) -> None:
    for right in (
        "patch afddeployments/status.afd.dev default",
        "create pods default",
        "list pods",
        "list nodes",
        f"create leases.coordination.k8s.io {NAMESPACE}",
    ):
        assert allowed(rights, ACCOUNT, right), right
    for right in (
        "create leases.coordination.k8s.io default",
        "update afddeployments.afd.dev default",
        f"get secrets {NAMESPACE}",
        "create pods/exec default",
        "patch nodes",
        "create clusterrolebindings.rbac.authorization.k8s.io",
    ):
        assert not allowed(rights, ACCOUNT, right), right


def test_people_who_may_edit_a_namespace_may_edit_its_deployments(cluster: Rack) -> None:
    """Aggregation: rights reach the built-in roles by label, without a binding of ours."""
    roles = of_kind(render(cluster), "ClusterRole")
    marks = {
        role["metadata"]["name"].rsplit("-", 1)[-1]: {
            label.rsplit("-", 1)[-1] for label in role["metadata"]["labels"] if "aggregate-to" in label
        }
        for role in roles
    }
    assert marks["view"] == {"view", "edit", "admin"}
    assert marks["edit"] == {"edit", "admin"}
