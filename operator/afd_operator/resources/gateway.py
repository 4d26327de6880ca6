"""The gateway: the HTTP front of a deployment, a Deployment of stateless pods outside the domains."""

from __future__ import annotations

from typing import Any

from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.pod_template import ContainerName
from afd_operator.resources import containers as parts
from afd_operator.resources.ownership import child, deployment_labels, role_selector
from afd_operator.resources.pods import shared_pod_spec
from afd_unit import labels, names, ports
from afd_unit.identity import Role

Json = dict[str, Any]


def gateway(deployment: AFDDeployment) -> Json:
    """The gateway's Deployment. It asks for no GPU and needs the model only for its tokenizer."""
    spec, name = deployment.spec, deployment.metadata.name
    template = spec.runtime.pod_template
    coordinators = f"{names.coordinators(name)}.{deployment.metadata.namespace}.svc"
    container = parts.container(
        spec,
        ContainerName.GATEWAY,
        "gateway",
        ["afd", "worker", Role.GATEWAY],
        env=[
            {"name": "AFD_COORDINATORS", "value": f"{coordinators}:{ports.COORDINATOR_CONTROL}"},
            {"name": "AFD_DEPLOYMENT", "value": deployment.key},
            {"name": "AFD_MODEL_ID", "value": spec.model.id},
            {"name": "AFD_MODEL_PATH", "value": parts.MODEL_PATH},
            {"name": "AFD_CONTEXT_LENGTH", "value": str(spec.model.context_length)},
        ],
        mounts=[parts.token_mount(), parts.model_mount(deployment), parts.tmp_mount()],
        ports=[("http", ports.GATEWAY_HTTP)],
        probe_port=ports.GATEWAY_HTTP,
    )
    body = child(
        deployment, "apps/v1", "Deployment", names.gateway(name), own_labels={labels.ROLE: Role.GATEWAY}
    )
    body["spec"] = {
        "replicas": spec.runtime.gateway.replicas,
        "selector": {"matchLabels": role_selector(deployment, Role.GATEWAY)},
        "template": {
            "metadata": {
                "labels": {
                    **template.metadata.labels,
                    **deployment_labels(deployment),
                    labels.ROLE: Role.GATEWAY,
                },
                "annotations": {**template.metadata.annotations, labels.DEPLOYMENT_NAME: name},
            },
            "spec": shared_pod_spec(
                deployment,
                containers=[container],
                volumes=[
                    parts.token_volume(),
                    parts.model_volume(deployment),
                    parts.tmp_volume(),
                ],
            ),
        },
    }
    return body
