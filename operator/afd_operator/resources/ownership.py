"""Whose child an object is: labels by which we find it, and the reference by which it goes with its owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afd_operator.api.deployment import API_VERSION, KIND, AFDDeployment
from afd_unit import labels, names
from afd_unit.identity import Role

Json = dict[str, Any]


def child(
    deployment: AFDDeployment,
    api_version: str,
    kind: str,
    name: str,
    *,
    own_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """The head of a child's manifest: everything but what it is for."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": deployment.metadata.namespace,
            "labels": {**deployment_labels(deployment), **(own_labels or {})},
            "annotations": {labels.DEPLOYMENT_NAME: deployment.metadata.name, **(annotations or {})},
            "ownerReferences": [owner_reference(deployment)],
        },
    }


def owner_reference(deployment: AFDDeployment) -> Json:
    """With `blockOwnerDeletion`, `kubectl delete --cascade=foreground` returns when the pods are gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": deployment.metadata.name,
        "uid": deployment.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def deployment_labels(deployment: AFDDeployment) -> dict[str, str]:
    """On every child. The uid keeps a deployment apart from a namesake that was deleted a moment ago."""
    return {
        labels.MANAGED_BY: labels.MANAGER,
        labels.DEPLOYMENT: names.stem(deployment.metadata.name),
        labels.DEPLOYMENT_UID: deployment.metadata.uid,
    }


def unit_labels(unit: int) -> dict[str, str]:
    return {labels.UNIT: str(unit)}


def role_selector(deployment: AFDDeployment, role: Role) -> dict[str, str]:
    """Selects the pods of one role in all units."""
    return {**_identity(deployment), labels.ROLE: role}


def unit_pods_selector(deployment: AFDDeployment) -> str:
    """Selects the pods of all units and no gateway, as text, for `status.selector`."""
    return f"{labels.DEPLOYMENT}={names.stem(deployment.metadata.name)},{labels.UNIT}"


def controller_uid(body: Mapping[str, Any]) -> str | None:
    """The uid of the object that controls `body`; None for an object without a controller."""
    for reference in body["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return None


def _identity(deployment: AFDDeployment) -> dict[str, str]:
    found = deployment_labels(deployment)
    return {key: found[key] for key in (labels.DEPLOYMENT, labels.DEPLOYMENT_UID)}
