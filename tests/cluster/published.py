"""Waiting for the API server: what it has accepted reaches its own readers a moment later."""

from __future__ import annotations

from kubernetes import client
from tests.rack import CommandError, Rack
from tests.rack.clients import wait

WITHIN_S = 30.0


def await_api(rack: Rack) -> None:
    """Until AFDDeployments are served with their documentation (OpenAPI is published after Established)."""
    wait("the documentation of AFDDeployments", lambda: _explained(rack), WITHIN_S)


def await_right(rack: Rack, account: str, right: str) -> None:
    """Until the authorizer has seen the roles that were just bound to `account`."""
    wait(f"{account} may {right}", lambda: allowed(rack, account, right), WITHIN_S)


def allowed(rack: Rack, account: str, right: str) -> bool:
    """Whether `account` has a right, written `verb resource[/subresource][.group] [namespace]`."""
    verb, what, *namespace = right.split()
    resource, _, group = what.partition(".")
    resource, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "namespace": "".join(namespace),
    }  # fmt: skip
    review = {"spec": {"user": account, "groups": ["system:authenticated"], "resourceAttributes": attributes}}
    answer = client.AuthorizationV1Api(rack.api).create_subject_access_review(review)
    return bool(answer.status.allowed)


def _explained(rack: Rack) -> bool:
    try:
        return "FIELDS" in rack.kubectl("explain", "afd")
    except CommandError:
        return False
