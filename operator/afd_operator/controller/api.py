"""The API server, as the operator talks to it: plain dicts in and out, typed errors.

The official client does connections, credentials and TLS. Its models are left out: decisions are made on
the API's own dicts, so a field that this client's version does not know is not lost on the way.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client, config

from afd_operator.api import deployment as afd

Json = dict[str, Any]

FIELD_MANAGER = "afd-operator"
TIMEOUT_S = 30.0
CHUNK = 500
"""Objects of one page of a list: bounds memory where a cluster has tens of thousands of pods."""

_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True)
class Kind:
    """A kind that the operator reads or writes, and where the API serves it."""

    name: str
    prefix: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        parts = [self.prefix]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        return "/".join(parts)


AFD = Kind(afd.KIND, f"/apis/{afd.API_VERSION}", afd.PLURAL)
POD = Kind("Pod", "/api/v1", "pods")
NODE = Kind("Node", "/api/v1", "nodes", namespaced=False)
SERVICE = Kind("Service", "/api/v1", "services")
CONFIG_MAP = Kind("ConfigMap", "/api/v1", "configmaps")
SERVICE_ACCOUNT = Kind("ServiceAccount", "/api/v1", "serviceaccounts")
DEPLOYMENT = Kind("Deployment", "/apis/apps/v1", "deployments")
CLAIM = Kind("PersistentVolumeClaim", "/api/v1", "persistentvolumeclaims")
LEASE = Kind("Lease", "/apis/coordination.k8s.io/v1", "leases")
EVENT = Kind("Event", "/apis/events.k8s.io/v1", "events")

CHILDREN = (SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, DEPLOYMENT)
"""Kinds of children beside pods."""
BY_NAME = {kind.name: kind for kind in (POD, *CHILDREN)}


class ApiError(Exception):
    """The API server refused a request. `reason` is its machine-readable word, empty if it gave none."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class NotFound(ApiError):
    """404: the object, its namespace or its kind is not there."""


class Conflict(ApiError):
    """409: somebody was faster. `AlreadyExists` on create, `Conflict` where a precondition failed."""


class Unreachable(Exception):
    """No answer: connection refused, reset or timed out."""


class Api:
    """One connection pool. `on_success` is called after every answer that is not a server error."""

    def __init__(self, configuration: client.Configuration, on_success: Callable[[], None]) -> None:
        self._client = client.ApiClient(configuration)
        self._on_success = on_success

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    # ---- reads ----

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """The object; None if there is none. Raises ApiError, Unreachable."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except NotFound:
            return None

    async def all(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Json]:
        """All objects, page by page. Raises ApiError, Unreachable."""
        query = {"limit": str(CHUNK), "labelSelector": labels, "fieldSelector": fields}
        while True:
            page = await self._request("GET", kind.path(namespace), query=query)
            for item in page["items"]:
                # Items of a list leave out what the list says for all of them.
                yield {**item, "apiVersion": page["apiVersion"], "kind": kind.name}
            token = page["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token

    # ---- writes ----

    async def create(self, kind: Kind, body: Json) -> Json:
        """Raises Conflict with the reason AlreadyExists if the name is taken."""
        return await self._request(
            "POST", kind.path(body["metadata"].get("namespace")), body=body, query=_MANAGED
        )

    async def replace(self, kind: Kind, body: Json) -> Json:
        """Raises Conflict if the object has changed since `metadata.resourceVersion`."""
        metadata = body["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._request("PUT", path, body=body, query=_MANAGED)

    async def apply(self, kind: Kind, body: Json, *, subresource: str = "") -> Json:
        """Server-side apply. With `metadata.uid` it raises Conflict if that is another object by now."""
        metadata = body["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"]) + (subresource and f"/{subresource}")
        query = {**_MANAGED, "force": "true"}
        return await self._request("PATCH", path, body=body, query=query, content_type=_APPLY)

    async def json_patch(self, kind: Kind, namespace: str, name: str, operations: list[Json]) -> Json:
        """Raises ApiError with status 422 if a `test` operation fails."""
        path = kind.path(namespace, name)
        return await self._request("PATCH", path, body=operations, query=_MANAGED, content_type=_JSON_PATCH)

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Delete exactly the object with this uid; done already is done. Raises ApiError, Unreachable."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", kind.path(namespace, name), body=body)
        except NotFound:
            return
        except Conflict:
            # Another object has the name by now: the one that was meant is gone.
            return

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Json:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        pairs = [(key, value) for key, value in (query or {}).items() if value]
        _, url, headers, _, _ = await self._client.param_serialize(
            method, path, query_params=pairs, header_params=headers, auth_settings=["BearerToken"]
        )
        try:
            answer = await self._client.call_api(
                method, url, headers, body=body, _request_timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
            )
            text: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__} {error}") from error
        if answer.status < 500:
            self._on_success()
        if answer.status >= 400:
            raise _error(answer.status, text)
        found: Json = json.loads(text)
        return found


_MANAGED = {"fieldManager": FIELD_MANAGER}


def _error(status: int, text: bytes) -> ApiError:
    """What the API server said; something in front of it may have answered with another format."""
    try:
        body = json.loads(text)
        reason, message = str(body.get("reason", "")), str(body.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", text[:200].decode(errors="replace")
    kinds = {404: NotFound, 409: Conflict}
    return kinds.get(status, ApiError)(status, reason, message)


async def load(kubeconfig: str | None) -> client.Configuration:
    """Credentials of the pod, or of `kubeconfig`. Raises config.ConfigException."""
    found = client.Configuration()
    if kubeconfig:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=found
        )
    else:
        config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
    return found
