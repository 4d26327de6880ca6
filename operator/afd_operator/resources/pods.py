"""The pods of a unit: one per node and role with a container per GPU, and the coordinator's.

All of them are born with our scheduling gate and a node selector on the unit's domain, and mount the
unit's ConfigMap: they cannot be scheduled before the gate is lifted, nowhere but in the domain, and no
container starts before the ConfigMap exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.pod_template import ContainerName
from afd_operator.api.spec import AFDDeploymentSpec
from afd_operator.resources import containers as parts
from afd_operator.resources.ownership import child, unit_labels
from afd_operator.resources.revision import revision
from afd_unit import labels, names, ports
from afd_unit.identity import Role

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One pod's place in a unit; `index` is 0 for the coordinator."""

    role: Role
    index: int


def places(spec: AFDDeploymentSpec) -> Iterator[Place]:
    """The pods that a unit is made of."""
    yield from (Place(Role.ATTENTION, index) for index in range(spec.ratio.attention or 0))
    yield from (Place(Role.EXPERT, index) for index in range(spec.ratio.expert or 0))
    yield Place(Role.COORDINATOR, 0)


def pod_name(deployment: str, unit: int, place: Place) -> str:
    if place.role is Role.COORDINATOR:
        return names.coordinator(deployment, unit)
    return names.pod(deployment, unit, place.role, place.index)


def unit_pod(deployment: AFDDeployment, unit: int, place: Place, domain: str) -> Json:
    """The pod that fills `place` of unit `unit` in `domain`."""
    if place.role is Role.COORDINATOR:
        return _coordinator(deployment, unit, place, domain)
    return _worker(deployment, unit, place, domain)


def _worker(deployment: AFDDeployment, unit: int, place: Place, domain: str) -> Json:
    spec = deployment.spec
    mounts = [
        parts.unit_file_mount(),
        parts.token_mount(),
        parts.model_mount(deployment),
        parts.tmp_mount(),
        parts.shm_mount(),
    ]
    return _pod(
        deployment,
        unit,
        place,
        domain,
        containers=[
            parts.container(
                spec,
                ContainerName.WORKER,
                names.container(device),
                ["afd", "worker", place.role],
                env=[
                    {"name": "AFD_UNIT_FILE", "value": parts.UNIT_FILE},
                    {"name": "AFD_POD_INDEX", "value": str(place.index)},
                    {"name": "AFD_DEVICE", "value": str(device)},
                ],
                mounts=mounts,
                # A port's name is unique in a pod, hence the device in it.
                ports=_worker_ports(place.role, device),
                probe_port=ports.worker_http(device),
                gpu=True,
            )
            for device in range(spec.placement.gpus_per_node)
        ],
        volumes=[
            parts.unit_file_volume(names.unit(deployment.metadata.name, unit)),
            parts.token_volume(),
            parts.model_volume(deployment),
            parts.tmp_volume(),
            parts.shm_volume(),
        ],
    )


def _worker_ports(role: Role, device: int) -> list[tuple[str, int]]:
    data = [(f"data-{device}", ports.expert_data(device))] if role is Role.EXPERT else []
    return [(f"http-{device}", ports.worker_http(device)), *data]


def _coordinator(deployment: AFDDeployment, unit: int, place: Place, domain: str) -> Json:
    return _pod(
        deployment,
        unit,
        place,
        domain,
        containers=[
            parts.container(
                deployment.spec,
                ContainerName.COORDINATOR,
                "coordinator",
                ["afd", "worker", Role.COORDINATOR],
                env=[
                    {"name": "AFD_UNIT_FILE", "value": parts.UNIT_FILE},
                    {"name": "AFD_API_TOKEN_FILE", "value": parts.API_TOKEN_FILE},
                    {"name": "AFD_API_CA_FILE", "value": parts.API_CA_FILE},
                ],
                mounts=[
                    parts.unit_file_mount(),
                    parts.token_mount(),
                    parts.model_mount(deployment),
                    parts.tmp_mount(),
                ],
                ports=[("control", ports.COORDINATOR_CONTROL), ("http", ports.COORDINATOR_HTTP)],
                probe_port=ports.COORDINATOR_HTTP,
            )
        ],
        volumes=[
            parts.unit_file_volume(names.unit(deployment.metadata.name, unit)),
            parts.token_volume(verifies=True),
            parts.model_volume(deployment),
            parts.tmp_volume(),
        ],
    )


def _pod(
    deployment: AFDDeployment,
    unit: int,
    place: Place,
    domain: str,
    *,
    containers: Sequence[Json],
    volumes: Sequence[Json],
) -> Json:
    spec = deployment.spec
    template = spec.runtime.pod_template
    body = child(
        deployment,
        "v1",
        "Pod",
        pod_name(deployment.metadata.name, unit, place),
        own_labels={
            **template.metadata.labels,
            **unit_labels(unit),
            labels.ROLE: place.role,
            labels.INDEX: str(place.index),
        },
        annotations={
            **template.metadata.annotations,
            labels.REVISION: revision(spec),
            labels.DOMAIN: domain,
        },
    )
    body["spec"] = {
        **shared_pod_spec(deployment, containers=containers, volumes=volumes),
        "schedulingGates": [{"name": labels.PLACEMENT_GATE}],
        "schedulerName": spec.placement.scheduler.name,
        "nodeSelector": {**template.spec.node_selector, spec.placement.topology_key: domain},
    }
    return body


def shared_pod_spec(
    deployment: AFDDeployment, *, containers: Sequence[Json], volumes: Sequence[Json]
) -> Json:
    """What the pods of units and of the gateway have in common, with the pod template's additions."""
    template = deployment.spec.runtime.pod_template.spec
    body: Json = {
        "serviceAccountName": names.service(deployment.metadata.name),
        # Peers are shown a token of our own audience; the API server's is mounted only where it is needed.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": parts.pod_security(),
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "nodeSelector": dict(template.node_selector),
        "tolerations": tolerations(deployment.spec),
        "containers": list(containers),
        "volumes": [*volumes, *(volume.dump() for volume in template.volumes)],
    }
    if template.image_pull_secrets:
        body["imagePullSecrets"] = [secret.dump() for secret in template.image_pull_secrets]
    if template.priority_class_name:
        body["priorityClassName"] = template.priority_class_name
    if template.runtime_class_name:
        body["runtimeClassName"] = template.runtime_class_name
    return body


def tolerations(spec: AFDDeploymentSpec) -> list[Json]:
    """GPU nodes are usually tainted with the name of their resource; and what the pod template tolerates."""
    gpu = {"key": labels.GPU, "operator": "Exists", "effect": "NoSchedule"}
    return [gpu, *(toleration.dump() for toleration in spec.runtime.pod_template.spec.tolerations)]
