"""Services and ServiceAccount of a deployment: how its processes find one another, and who they are."""

from __future__ import annotations

from typing import Any

from afd_operator.api.deployment import AFDDeployment
from afd_operator.resources.ownership import child, role_selector, unit_labels
from afd_unit import names, ports
from afd_unit.identity import Role

Json = dict[str, Any]


def account(deployment: AFDDeployment) -> Json:
    """The account of all its processes. It has no rights; its tokens only say which pod shows them."""
    body = child(deployment, "v1", "ServiceAccount", names.service(deployment.metadata.name))
    body["automountServiceAccountToken"] = False
    return body


def coordinator_service(deployment: AFDDeployment, unit: int) -> Json:
    """Where a unit's workers find their coordinator.

    With an address of its own (not headless), so that workers reach a replaced coordinator without
    waiting for a DNS cache. Not-ready addresses are published: a coordinator is ready only when its
    workers have found it.
    """
    body = child(
        deployment,
        "v1",
        "Service",
        names.coordinator(deployment.metadata.name, unit),
        own_labels=unit_labels(unit),
    )
    body["spec"] = {
        "selector": {**role_selector(deployment, Role.COORDINATOR), **unit_labels(unit)},
        "publishNotReadyAddresses": True,
        "ports": [
            _port("control", ports.COORDINATOR_CONTROL, "control"),
            _port("http", ports.COORDINATOR_HTTP, "http"),
        ],
    }
    return body


def coordinators_service(deployment: AFDDeployment) -> Json:
    """Where gateways find all coordinators: headless, one address each."""
    body = child(deployment, "v1", "Service", names.coordinators(deployment.metadata.name))
    body["spec"] = {
        "clusterIP": "None",
        "selector": role_selector(deployment, Role.COORDINATOR),
        "publishNotReadyAddresses": True,
        "ports": [_port("control", ports.COORDINATOR_CONTROL, "control")],
    }
    return body


def client_service(deployment: AFDDeployment) -> Json:
    """Where clients find the OpenAI-compatible API: `http://<name>.<namespace>/v1`."""
    body = child(deployment, "v1", "Service", names.service(deployment.metadata.name))
    body["spec"] = {
        "selector": role_selector(deployment, Role.GATEWAY),
        "ports": [_port("http", 80, "http")],
    }
    return body


def _port(name: str, number: int, target: str) -> Json:
    return {"name": name, "port": number, "targetPort": target, "protocol": "TCP"}
