"""Doing what a plan says: each action one write, with a precondition so that it hits what was seen."""

from __future__ import annotations

from afd_operator.controller.api import BY_NAME, LEASE, POD, Api, ApiError, Conflict, Json, NotFound
from afd_operator.lifecycle.actions import (
    Action,
    Apply,
    CreatePod,
    Delete,
    DeletePod,
    LiftGate,
    Release,
    Reserve,
)
from afd_operator.lifecycle.observed import Refusal
from afd_operator.placement.reservation import to_lease
from afd_operator.resources.ownership import controller_uid
from afd_unit import labels

_FINAL = {400: "Invalid", 403: "Forbidden", 413: "Invalid", 422: "Invalid"}
"""Answers that the same request will get again: quota, admission, a value that is not legal."""


class LookAgain(Exception):
    """Somebody was faster, and what the plan was made from holds no longer: plan anew, soon."""


class Refused(Exception):
    """The API server will not take an object of ours, and says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.reason}: {refusal.message}")
        self.refusal = refusal


async def perform(api: Api, action: Action, *, namespace: str, operator_namespace: str) -> None:
    """Raises LookAgain, Refused, ApiError (a server error), Unreachable."""
    match action:
        case Reserve(key, domain, holder):
            await _reserve(api, to_lease(key, domain, holder, operator_namespace), domain)
        case Release(reservation):
            await api.delete(LEASE, operator_namespace, reservation.lease, uid=reservation.lease_uid)
        case CreatePod(manifest):
            await _create_pod(api, manifest)
        case DeletePod(name, uid, _):
            await api.delete(POD, namespace, name, uid=uid)
        case LiftGate(name, uid):
            await _lift(api, namespace, name, uid)
        case Apply(manifest):
            await _apply(api, manifest)
        case Delete(kind, name, uid):
            await api.delete(BY_NAME[kind], namespace, name, uid=uid)


async def _reserve(api: Api, lease: Json, domain: str) -> None:
    try:
        await api.create(LEASE, lease)
    except Conflict as error:
        raise LookAgain(f"domain {domain} was taken by another unit in this moment") from error


async def _create_pod(api: Api, manifest: Json) -> None:
    try:
        await api.create(POD, manifest)
    except Conflict as error:
        await _name_taken(api, manifest, error)
    except ApiError as error:
        raise _refused(manifest, error) from error


async def _lift(api: Api, namespace: str, name: str, uid: str) -> None:
    """Takes our gate out of the list and leaves those of others (as in ai-dynamo/grove#723)."""
    pod = await api.get(POD, namespace, name)
    gates = [gate["name"] for gate in ((pod or {}).get("spec") or {}).get("schedulingGates") or ()]
    if pod is None or pod["metadata"]["uid"] != uid or labels.PLACEMENT_GATE not in gates:
        return
    at = f"/spec/schedulingGates/{gates.index(labels.PLACEMENT_GATE)}"
    try:
        await api.json_patch(
            POD,
            namespace,
            name,
            [
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "test", "path": f"{at}/name", "value": labels.PLACEMENT_GATE},
                {"op": "remove", "path": at},
            ],
        )
    except NotFound:
        return
    except ApiError as error:
        if error.status != 422:
            raise
        raise LookAgain(f"the gates of pod {name} changed in this moment") from error


async def _apply(api: Api, manifest: Json) -> None:
    """Create or update a child, never an object of somebody else that happens to have its name.

    Server-side apply alone would quietly take such an object over, so we look whose it is. It takes its uid
    as a precondition; a foreign object that appears between look and write can only make the write fail or
    be found at the next look.
    """
    kind, metadata = BY_NAME[manifest["kind"]], manifest["metadata"]
    present = await api.get(kind, metadata["namespace"], metadata["name"])
    if present is not None:
        if controller_uid(present) != controller_uid(manifest):
            await _name_taken(api, manifest, None, present)
        manifest = {**manifest, "metadata": {**metadata, "uid": present["metadata"]["uid"]}}
    try:
        await api.apply(kind, manifest)
    except Conflict as error:
        raise LookAgain(f"{manifest['kind']} {metadata['name']} changed in this moment") from error
    except ApiError as error:
        raise _refused(manifest, error) from error


async def _name_taken(api: Api, manifest: Json, error: Exception | None, present: Json | None = None) -> None:
    """The name is taken: by what a deleted namesake leaves behind, which passes, or by somebody for good."""
    kind, metadata = BY_NAME[manifest["kind"]], manifest["metadata"]
    if present is None:
        present = await api.get(kind, metadata["namespace"], metadata["name"])
    if present is None or _ours(present, metadata["labels"][labels.DEPLOYMENT]):
        raise LookAgain(f"{manifest['kind']} {metadata['name']} is there still, or already") from error
    message = (
        f"{manifest['kind']} {metadata['name']} exists and is not this deployment's: "
        "rename or delete it, or give the deployment another name"
    )
    raise Refused(Refusal("NameTaken", message)) from error


def _ours(body: Json, stem: str) -> bool:
    found = body["metadata"].get("labels") or {}
    return found.get(labels.MANAGED_BY) == labels.MANAGER and found.get(labels.DEPLOYMENT) == stem


def _refused(manifest: Json, error: ApiError) -> ApiError | Refused:
    """A refusal for a status, or the error as it is if trying again may help."""
    if error.status not in _FINAL:
        return error
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    return Refused(Refusal(_FINAL[error.status], f"{what}: {error.message}"))
