"""What all runtime containers share: security, environment, probes, volumes, the pod template's additions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.pod_template import Container, ContainerName
from afd_operator.api.spec import AFDDeploymentSpec
from afd_unit import labels

Json = dict[str, Any]

RUNTIME_UID = 65532
"""The `nonroot` user of distroless images. Numeric: the kubelet cannot check a name against runAsNonRoot."""

UNIT_FILE = "/etc/afd/unit.json"
TOKEN_FILE = "/var/run/secrets/afd/token"
API_TOKEN_FILE = "/var/run/secrets/afd/api-token"
API_CA_FILE = "/var/run/secrets/afd/ca.crt"
MODEL_PATH = "/model"

TOKEN_SECONDS = 3600
"""Life of a projected token; the kubelet renews it at 80 %."""

STARTUP_MINUTES = 30
"""How long a process may take until it answers: 60 GB of weights per GPU from a network volume."""


def pod_security() -> Json:
    """Pod Security `restricted` (Kubernetes documentation, "Pod Security Standards"), with a fixed user."""
    return {
        "runAsNonRoot": True,
        "runAsUser": RUNTIME_UID,
        "runAsGroup": RUNTIME_UID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container_security() -> Json:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def container(
    spec: AFDDeploymentSpec,
    kind: ContainerName,
    name: str,
    command: Sequence[str],
    *,
    env: Sequence[Json],
    mounts: Sequence[Json],
    ports: Sequence[tuple[str, int]],
    probe_port: int,
    gpu: bool = False,
) -> Json:
    """One container of the runtime with what the pod template adds to its kind.

    `ports` are (name, number); `probe_port` serves `/health` (the process lives) and `/ready` (it serves).
    """
    extra = additions(spec, kind)
    body: Json = {
        "name": name,
        "image": spec.runtime.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "command": list(command),
        "env": [
            *env,
            {"name": "AFD_TOKEN_FILE", "value": TOKEN_FILE},
            from_field("AFD_POD_NAME", "metadata.name"),
            from_field("AFD_POD_IP", "status.podIP"),
            *_home(extra),
            *(variable.dump() for variable in extra.env),
        ],
        "ports": [{"name": port, "containerPort": number} for port, number in ports],
        "volumeMounts": [*mounts, *(mount.dump() for mount in extra.volume_mounts)],
        "resources": _resources(extra, gpu=gpu),
        "securityContext": _container_security(),
        # `/health` answers as soon as the process can; liveness only counts from then on.
        "startupProbe": _probe("/health", probe_port, period_s=2, failures=STARTUP_MINUTES * 60 // 2),
        "readinessProbe": _probe("/ready", probe_port, period_s=2, failures=2),
        "livenessProbe": _probe("/health", probe_port, period_s=10, failures=6),
    }
    if extra.env_from:
        body["envFrom"] = [source.dump() for source in extra.env_from]
    return body


def additions(spec: AFDDeploymentSpec, kind: ContainerName) -> Container:
    """What the pod template adds to containers of this kind."""
    for entry in spec.runtime.pod_template.spec.containers:
        if entry.name is kind:
            return entry
    return Container(name=kind)


def from_field(name: str, path: str) -> Json:
    """An environment variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _home(extra: Container) -> list[Json]:
    """HOME and USER for a uid that no passwd file knows (getpwuid would fail), unless the user sets them."""
    given = {variable.name for variable in extra.env}
    defaults = {"HOME": "/tmp", "USER": "afd"}
    return [{"name": name, "value": value} for name, value in defaults.items() if name not in given]


def _resources(extra: Container, *, gpu: bool) -> Json:
    """Requests small enough for any node, no limits: how much a model needs only its owner knows."""
    requests: Json = {"cpu": "100m", "memory": "256Mi", **extra.resources.requests}
    limits: Json = dict(extra.resources.limits)
    for name in ("cpu", "memory"):
        # A default request above a given limit would be refused.
        if name in limits and name not in extra.resources.requests:
            requests[name] = limits[name]
    if gpu:
        requests[labels.GPU] = limits[labels.GPU] = "1"
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _probe(path: str, port: int, *, period_s: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


# ---- volumes, each beside its mount ----


def unit_file_volume(config_map: str) -> Json:
    """A container cannot start before this ConfigMap exists: that is what holds back half a unit."""
    return {
        "name": "afd-unit",
        "configMap": {"name": config_map, "items": [{"key": "unit.json", "path": "unit.json"}]},
    }


def unit_file_mount() -> Json:
    return {"name": "afd-unit", "mountPath": "/etc/afd", "readOnly": True}


def token_volume(*, verifies: bool = False) -> Json:
    """The pod's own token for its peers. Who `verifies` them also gets a token for the API server, where
    the keys are published (`/openid/v1/jwks`), and the authority that signs the API server's certificate."""
    sources: list[Json] = [
        {
            "serviceAccountToken": {
                "path": "token",
                "audience": labels.TOKEN_AUDIENCE,
                "expirationSeconds": TOKEN_SECONDS,
            }
        }
    ]
    if verifies:
        sources += [
            {"serviceAccountToken": {"path": "api-token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    return {"name": "afd-token", "projected": {"sources": sources}}


def token_mount() -> Json:
    return {"name": "afd-token", "mountPath": "/var/run/secrets/afd", "readOnly": True}


def model_volume(deployment: AFDDeployment) -> Json:
    source = deployment.spec.model.pvc
    if source is None:
        raise ValueError(f"model.source {deployment.spec.model.source} is no pvc:// source")
    return {"name": "afd-model", "persistentVolumeClaim": {"claimName": source.claim, "readOnly": True}}


def model_mount(deployment: AFDDeployment) -> Json:
    source = deployment.spec.model.pvc
    folder = {"subPath": source.path} if source is not None and source.path else {}
    return {"name": "afd-model", "mountPath": MODEL_PATH, "readOnly": True, **folder}


def tmp_volume() -> Json:
    return {"name": "afd-tmp", "emptyDir": {}}


def tmp_mount() -> Json:
    """The root file system is read-only; libraries that unpack or compile need some place."""
    return {"name": "afd-tmp", "mountPath": "/tmp"}


def shm_volume() -> Json:
    return {"name": "afd-shm", "emptyDir": {"medium": "Memory"}}


def shm_mount() -> Json:
    """Shared memory of all GPUs' containers of a pod, larger than the 64 MiB of a container's own."""
    return {"name": "afd-shm", "mountPath": "/dev/shm"}
