"""Good and bad AFDDeployments, one table for both judges: `parse` (tests/unit/api) and the API server itself
(tests/cluster/test_api.py)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MINIMAL: dict[str, Any] = {
    "apiVersion": "afd.dev/v1alpha1",
    "kind": "AFDDeployment",
    "metadata": {"name": "demo"},
    "spec": {"model": {"id": "afd/demo", "source": "pvc://models/demo"}, "runtime": {"image": "afd:dev"}},
}

DELETE = object()
"""In a patch: take the field away."""


def patched(patch: dict[str, Any], base: dict[str, Any] = MINIMAL) -> dict[str, Any]:
    """`base` with its spec patched: objects are merged, anything else is replaced."""
    out = copy.deepcopy(base)
    _merge(out["spec"], patch)
    return out


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is DELETE:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def template(**spec: Any) -> dict[str, Any]:
    """A patch of the pod template's spec."""
    return {"runtime": {"podTemplate": {"spec": spec}}}


def worker(**container: Any) -> dict[str, Any]:
    """A patch of the worker containers."""
    return template(containers=[{"name": "worker", **container}])


def metadata(**maps: dict[str, str]) -> dict[str, Any]:
    """A patch of the pod template's metadata."""
    return {"runtime": {"podTemplate": {"metadata": maps}}}


def selector(**requirement: Any) -> dict[str, Any]:
    """A patch: domains by one requirement on their nodes' labels."""
    return {"placement": {"domainSelector": {"matchExpressions": [requirement]}}}


def scaling(least: int, most: int, **more: Any) -> dict[str, Any]:
    """A patch: attention nodes between two bounds."""
    return {"scaling": {"attention": {"min": least, "max": most}, **more}}


def budget(**fields: Any) -> dict[str, Any]:
    """A patch of the restart budget."""
    return {"failurePolicy": {"restartBudget": fields}}


WORKER = "spec.runtime.podTemplate.spec.containers[0]"
WORKLOAD = {"inputTokens": 1000, "outputTokens": 100, "requestsPerSecond": 2.5}

FULL = patched(
    {
        "model": {"contextLength": 16384, "kvCacheDtype": "bf16"},
        "units": 2,
        "ratio": {"attention": 7, "expert": 1, "prefill": 1},
        "microbatches": 3,
        "smBudget": {"boundary": 24, "decode": 48},
        "slo": {"ttft": "2s", "tpot": "50ms", "percentile": 95},
        "workload": WORKLOAD,
        "placement": {
            "topologyKey": "example.com/rack", "gpusPerNode": 8, "sharing": "Shared", "spares": 1,
            "domainSelector": {
                "matchLabels": {"pool": "inference"},
                "matchExpressions": [
                    {"key": "generation", "operator": "In", "values": ["gb200", "gb300"]},
                    {"key": "example.com/broken", "operator": "DoesNotExist"},
                ],
            },
            "fabric": "ComputeDomain", "scheduler": {"name": "my-scheduler", "backend": "PodGroup"},
        },
        "scaling": {"attention": {"min": 4, "max": 16}, "policy": "FFNSlack", "targetSlack": 0.25},
        "failurePolicy": {
            "attention": "RestartUnit", "expert": "RestartUnit", "domain": "Hold",
            "restartBudget": {"restarts": 3, "window": "1h30m"},
        },
        "update": {"strategy": "BlueGreenDomain"},
        "runtime": {
            "imagePullPolicy": "Always", "backend": "sglang", "gateway": {"replicas": 3},
            "podTemplate": {
                "metadata": {"labels": {"team": "inference"}, "annotations": {"example.com/note": "text"}},
                "spec": {
                    "containers": [
                        {
                            "name": "worker",
                            "env": [
                                {"name": "HF_HOME", "value": "/cache"},
                                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "h", "key": "k"}}},
                            ],
                            "envFrom": [{"prefix": "NCCL_", "configMapRef": {"name": "nccl"}}],
                            "volumeMounts": [{"name": "cache", "mountPath": "/cache", "readOnly": False}],
                            "resources": {
                                "requests": {"cpu": "500m", "memory": "16Gi"}, "limits": {"memory": "32Gi"},
                            },
                        },
                        {"name": "gateway", "resources": {"limits": {"cpu": 2}}},
                    ],
                    "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "10Gi"}}],
                    "tolerations": [
                        {"operator": "Exists"},
                        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                        {"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                    ],
                    "nodeSelector": {"kubernetes.io/arch": "arm64"},
                    "imagePullSecrets": [{"name": "registry"}],
                    "priorityClassName": "high", "runtimeClassName": "nvidia",
                    "terminationGracePeriodSeconds": 120,
                },
            },
        },
    }
)  # fmt: skip
"""Every field set, each to something else than its default."""


@dataclass(frozen=True)
class Good:
    name: str
    patch: dict[str, Any]


@dataclass(frozen=True)
class Bad:
    name: str
    """Why nobody may write this."""
    patch: dict[str, Any]
    field: str
    """The field that the error must name."""
    says: str
    """Words of the API server's error."""


@dataclass(frozen=True)
class Limit:
    """The longest name that a field takes."""

    field: str
    characters: int
    patch: Callable[[str], dict[str, Any]]

    def good(self) -> Good:
        return Good(f"{self.field}: {self.characters} characters", self.patch("x" * self.characters))

    def bad(self) -> Bad:
        longer = self.patch("x" * (self.characters + 1))
        return Bad(f"{self.characters + 1} characters", longer, self.field, "Too long")


LIMITS = (
    Limit("spec.model.id", 200, lambda text: {"model": {"id": text}}),
    Limit("spec.model.source", 1024, lambda text: {"model": {"source": f"s3://{text[5:]}"}}),
    Limit("spec.placement.scheduler.name", 253, lambda text: {"placement": {"scheduler": {"name": text}}}),
    Limit("spec.placement.topologyKey", 317, lambda text: {
        "placement": {"topologyKey": f"{text[:253]}/{text[254:]}"}}),
    Limit("spec.runtime.image", 512, lambda text: {"runtime": {"image": text}}),
    Limit(f"{WORKER}.env[0].name", 253, lambda text: worker(env=[{"name": text, "value": ""}])),
    Limit("spec.runtime.podTemplate.spec.volumes[0].name", 63, lambda text: template(
        volumes=[{"name": text, "emptyDir": {}}])),
    Limit("spec.runtime.podTemplate.spec.priorityClassName", 253, lambda text: template(
        priorityClassName=text)),
    Limit("spec.runtime.podTemplate.spec.imagePullSecrets[0].name", 253, lambda text: template(
        imagePullSecrets=[{"name": text}])),
)  # fmt: skip


GOOD = (
    *(limit.good() for limit in LIMITS),
    Good("zero units: a deployment may sleep", {"units": 0}),
    Good("how much memory a lane takes for keys and values",
        worker(env=[{"name": "AFD_KV_BYTES", "value": "60000000000"}])),
    Good("planner chooses the ratio", {"ratio": {"mode": "Auto"}, "workload": WORKLOAD}),
    Good("planner chooses within bounds", {
        "ratio": {"mode": "Auto"}, "workload": WORKLOAD, "scaling": {"attention": {"min": 2, "max": 4}}}),
    Good("a source that this version cannot read is the operator's to say", {"model": {"source": "hf://a/b"}}),
    Good("source is the root of a volume", {"model": {"source": "pvc://models"}}),
    Good("dots in a path that are no step upwards", {"model": {"source": "pvc://models/v1..2/..x"}}),
    Good("one node decodes, the others prefill", {"ratio": {"attention": 8, "expert": 1, "prefill": 7}}),
    Good("scaling bounds that meet the ratio exactly", {
        "ratio": {"attention": 4, "expert": 1}, "scaling": {"attention": {"min": 4, "max": 4}}}),
    Good("workload that fills the context exactly", {
        "model": {"contextLength": 1100}, "workload": WORKLOAD}),
    Good("longest duration", {"slo": {"ttft": "99999.999h99999h99999h99999h"}}),
    Good("only one time in the service level", {"slo": {"tpot": "37.5ms"}}),
    Good("smallest SM budget", {"smBudget": {"boundary": 2, "decode": 2}}),
    Good("restart window at its bounds", budget(restarts=0, window="60s")),
    Good("image by digest from a registry with a port", {
        "runtime": {"image": f"[::1]:5000/team/afd@sha256:{'0' * 64}"}}),
    Good("a mount beside a reserved folder", template(
        containers=[{"name": "worker", "volumeMounts": [{"name": "a", "mountPath": "/models"}]}],
        volumes=[{"name": "a", "emptyDir": {}}])),
    Good("a variable that only looks reserved", worker(env=[{"name": "afd_x", "value": "1"}])),
)  # fmt: skip


_REQUIRED = "Required value"
_ENUM = "Unsupported value"
_LESS = "should be less than or equal to"
_MORE = "should be greater than or equal to"
_PATTERN = "should match"
_LONG = "Too long"
_TYPE = "must be of type"

BAD = (
    *(limit.bad() for limit in LIMITS),
    # What is served
    Bad("no model", {"model": DELETE}, "spec.model", _REQUIRED),
    Bad("no model id", {"model": {"id": DELETE}}, "spec.model.id", _REQUIRED),
    Bad("blank in a model id: no client could name it", {"model": {"id": "a b"}}, "spec.model.id", _PATTERN),
    Bad("model id too long for a label of a metric", {"model": {"id": "a" * 201}}, "spec.model.id", _LONG),
    Bad("source is a path, not a URI", {"model": {"source": "/models/demo"}}, "spec.model.source", _PATTERN),
    Bad("claim that no claim can be called", {"model": {"source": "pvc://My_Claim/x"}}, "spec.model.source",
        "must be pvc://CLAIM/PATH"),
    Bad("claim missing", {"model": {"source": "pvc:///demo"}}, "spec.model.source", "must be pvc://CLAIM/PATH"),
    Bad("path that leaves the volume", {"model": {"source": "pvc://models/a/../../etc"}}, "spec.model.source",
        "must not step out of the volume"),
    Bad("no context at all", {"model": {"contextLength": 0}}, "spec.model.contextLength", _MORE),
    Bad("context is text", {"model": {"contextLength": "16K"}}, "spec.model.contextLength", _TYPE),
    Bad("unknown KV type", {"model": {"kvCacheDtype": "int3"}}, "spec.model.kvCacheDtype", _ENUM),
    # How much
    Bad("less than no unit", {"units": -1}, "spec.units", _MORE),
    Bad("more units than indices have digits", {"units": 1001}, "spec.units", _LESS),
    Bad("half a unit", {"units": 1.5}, "spec.units", _TYPE),
    Bad("ratio without experts", {"ratio": {"attention": 7}}, "spec.ratio.expert", "is required unless"),
    Bad("ratio without attention", {"ratio": {"expert": 1}}, "spec.ratio.attention", "is required unless"),
    Bad("no attention node", {"ratio": {"attention": 0, "expert": 1}}, "spec.ratio.attention", _MORE),
    Bad("numbers beside Auto", {"ratio": {"mode": "Auto", "attention": 7}, "workload": WORKLOAD},
        "spec.ratio.mode", "Auto chooses"),
    Bad("nothing to plan for", {"ratio": {"mode": "Auto"}}, "spec.workload", "is required when"),
    Bad("unknown ratio mode", {"ratio": {"mode": "Guess"}}, "spec.ratio.mode", _ENUM),
    Bad("nobody left to decode", {"ratio": {"attention": 3, "expert": 1, "prefill": 3}}, "spec.ratio.prefill",
        "must be less than ratio.attention"),
    Bad("no microbatch", {"microbatches": 0}, "spec.microbatches", _MORE),
    Bad("more microbatches than the kernels have lanes for", {"microbatches": 5}, "spec.microbatches", _LESS),
    Bad("odd budget: kernels launch clusters of two", {"smBudget": {"boundary": 23, "decode": 48}},
        "spec.smBudget.boundary", "multiple of 2"),
    Bad("budget for one side only", {"smBudget": {"boundary": 24}}, "spec.smBudget.decode",
        "is required unless"),
    Bad("numbers beside Auto", {"smBudget": {"mode": "Auto", "decode": 48}}, "spec.smBudget.mode",
        "Auto chooses"),
    # How well
    Bad("service level without a time", {"slo": {"percentile": 90}}, "spec.slo.ttft",
        "give ttft, tpot or both"),
    Bad("time without a unit", {"slo": {"ttft": "2"}}, "spec.slo.ttft", _PATTERN),
    Bad("time is a number", {"slo": {"tpot": 50}}, "spec.slo.tpot", _TYPE),
    Bad("time past what can be computed with", {"slo": {"ttft": f"{'9' * 20}h"}}, "spec.slo.ttft", _PATTERN),
    Bad("no time at all", {"slo": {"tpot": "0ms"}}, "spec.slo.tpot", "must be longer than 0s"),
    Bad("percentile that no finite number of requests shows", {"slo": {"ttft": "2s", "percentile": 100}},
        "spec.slo.percentile", _LESS),
    Bad("percentile below the median", {"slo": {"ttft": "2s", "percentile": 10}},
        "spec.slo.percentile", _MORE),
    Bad("workload without a rate", {"workload": {"inputTokens": 1, "outputTokens": 1}},
        "spec.workload.requestsPerSecond", _REQUIRED),
    Bad("rate of zero", {"workload": {**WORKLOAD, "requestsPerSecond": 0}}, "spec.workload.requestsPerSecond",
        "should be greater than 0"),
    Bad("workload longer than the context", {"model": {"contextLength": 1099}, "workload": WORKLOAD},
        "spec.workload.inputTokens", "must not be greater than model.contextLength"),
    # Where
    Bad("topology key that no label can have", {"placement": {"topologyKey": "a/b/c"}},
        "spec.placement.topologyKey", _PATTERN),
    Bad("a node without GPUs", {"placement": {"gpusPerNode": 0}}, "spec.placement.gpusPerNode", _MORE),
    Bad("unknown fabric", {"placement": {"fabric": "Myrinet"}}, "spec.placement.fabric", _ENUM),
    Bad("unknown sharing", {"placement": {"sharing": "Maybe"}}, "spec.placement.sharing", _ENUM),
    Bad("less than no spare", {"placement": {"spares": -1}}, "spec.placement.spares", _MORE),
    Bad("unknown scheduler back end", {"placement": {"scheduler": {"backend": "Dice"}}},
        "spec.placement.scheduler.backend", _ENUM),
    Bad("scheduler that nobody can be called", {"placement": {"scheduler": {"name": "My Scheduler"}}},
        "spec.placement.scheduler.name", _PATTERN),
    Bad("In without values", selector(key="a", operator="In"),
        "spec.placement.domainSelector.matchExpressions[0].values", "must be given for In"),
    Bad("Exists with values", selector(key="a", operator="Exists", values=["x"]),
        "spec.placement.domainSelector.matchExpressions[0].values", "left out for Exists"),
    # Over time
    Bad("bounds upside down", scaling(4, 2),
        "spec.scaling.attention.min", "must not be greater than max"),
    Bad("ratio out of the scaling bounds", {
        "ratio": {"attention": 9, "expert": 1}, "scaling": {"attention": {"min": 2, "max": 8}}},
        "spec.ratio.attention", "must lie between"),
    Bad("shrinking could leave nobody to decode", {
        "ratio": {"attention": 6, "expert": 1, "prefill": 2}, "scaling": {"attention": {"min": 2, "max": 8}}},
        "spec.scaling.attention.min", "must be greater than ratio.prefill"),
    Bad("unknown scaling policy", scaling(1, 2, policy="Mood"),
        "spec.scaling.policy", _ENUM),
    Bad("slack above what attention takes", scaling(1, 2, targetSlack=1.5),
        "spec.scaling.targetSlack", _LESS),
    Bad("unknown reaction", {"failurePolicy": {"expert": "Panic"}}, "spec.failurePolicy.expert", _ENUM),
    Bad("restart window shorter than a restart", budget(window="1s"),
        "spec.failurePolicy.restartBudget.window", "must be between 1m and 168h"),
    Bad("restart window longer than anyone remembers", budget(window="200h"),
        "spec.failurePolicy.restartBudget.window", "must be between 1m and 168h"),
    Bad("unknown update strategy", {"update": {"strategy": "Yolo"}}, "spec.update.strategy", _ENUM),
    # With which containers
    Bad("no image", {"runtime": {"image": DELETE}}, "spec.runtime.image", _REQUIRED),
    Bad("image is empty", {"runtime": {"image": ""}}, "spec.runtime.image", "at least 1 chars"),
    Bad("image with a blank", {"runtime": {"image": "afd: dev"}}, "spec.runtime.image", _PATTERN),
    Bad("unknown pull policy", {"runtime": {"imagePullPolicy": "Now"}},
        "spec.runtime.imagePullPolicy", _ENUM),
    Bad("unknown back end", {"runtime": {"backend": "vllm"}}, "spec.runtime.backend", _ENUM),
    Bad("no gateway", {"runtime": {"gateway": {"replicas": 0}}}, "spec.runtime.gateway.replicas", _MORE),
    Bad("container that no pod has", template(containers=[{"name": "sidecar"}]), f"{WORKER}.name", _ENUM),
    Bad("two entries for one kind", template(containers=[{"name": "worker"}, {"name": "worker"}]),
        "spec.runtime.podTemplate.spec.containers[1]", "Duplicate value"),
    Bad("a variable that says who a process is", worker(env=[{"name": "AFD_POD_INDEX", "value": "0"}]),
        f"{WORKER}.env[0].name", "must not begin with AFD_"),
    Bad("GPUs are the operator's to ask for", worker(resources={"limits": {"nvidia.com/gpu": 8}}),
        f"{WORKER}.resources.limits", "must not name nvidia.com/gpu"),
    Bad("GPUs are the operator's to ask for", worker(resources={"requests": {"nvidia.com/gpu": 8}}),
        f"{WORKER}.resources.requests", "must not name nvidia.com/gpu"),
    Bad("memory in words", worker(resources={"limits": {"memory": "lots"}}),
        f"{WORKER}.resources.limits.memory", _PATTERN),
    Bad("a mount over the unit file", worker(volumeMounts=[{"name": "a", "mountPath": "/etc/afd/unit"}]),
        f"{WORKER}.volumeMounts[0].mountPath", "must not be in"),
    Bad("a mount of a volume that is not there", worker(volumeMounts=[{"name": "a", "mountPath": "/cache"}]),
        "spec.runtime.podTemplate.spec.containers", "must mount only what is listed"),
    Bad("a mount at no absolute path", worker(volumeMounts=[{"name": "a", "mountPath": "cache"}]),
        f"{WORKER}.volumeMounts[0].mountPath", _PATTERN),
    Bad("a volume called like the operator's", template(volumes=[{"name": "afd-unit", "emptyDir": {}}]),
        "spec.runtime.podTemplate.spec.volumes[0].name", "must not begin with afd-"),
    Bad("choosing the domain by node selector", template(nodeSelector={"nvidia.com/gpu.clique": "a.1"}),
        "spec.runtime.podTemplate.spec.nodeSelector", "must not name placement.topologyKey"),
    Bad("choosing one node for all pods", template(nodeSelector={"kubernetes.io/hostname": "n1"}),
        "spec.runtime.podTemplate.spec.nodeSelector", "must not name kubernetes.io/hostname"),
    Bad("labels by which the operator finds pods", metadata(labels={"afd.dev/unit": "7"}),
        "spec.runtime.podTemplate.metadata.labels", "must not be under afd.dev/"),
    Bad("label by which the operator finds pods", metadata(labels={"app.kubernetes.io/managed-by": "me"}),
        "spec.runtime.podTemplate.metadata.labels", "must not set app.kubernetes.io/managed-by"),
    Bad("annotations of the operator", metadata(annotations={"afd.dev/revision": "7"}),
        "spec.runtime.podTemplate.metadata.annotations", "must not be under afd.dev/"),
    Bad("value of a toleration that takes every value", template(tolerations=[
        {"key": "a", "operator": "Exists", "value": "b"}]),
        "spec.runtime.podTemplate.spec.tolerations[0].value", "must be left out when"),
    Bad("toleration of nothing", template(tolerations=[{"effect": "NoSchedule"}]),
        "spec.runtime.podTemplate.spec.tolerations[0].key", "is required unless"),
    Bad("time for a taint that evicts nobody", template(tolerations=[
        {"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]),
        "spec.runtime.podTemplate.spec.tolerations[0].tolerationSeconds", "needs effect NoExecute"),
    Bad("no time to hand over requests", template(terminationGracePeriodSeconds=0),
        "spec.runtime.podTemplate.spec.terminationGracePeriodSeconds", _MORE),
)  # fmt: skip
