"""What kopf is for: watches that survive. Each event becomes a key, and nothing is decided here.

    AFDDeployment        itself
    its children         the owner's name, from an annotation
    Node                 whoever waits for a domain, or has a pod there, if it changed in what matters

kopf runs in a thread and a loop of its own: it cannot be held up by a reconcile, its signal handlers and
its hunt for stray tasks at exit leave ours alone, and keys cross over by one thread-safe call. Handlers
are `on.event` only, so kopf writes nothing: no finalizer, no annotation.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import kopf
from kubernetes.aio import client

from afd_operator.api import deployment as afd
from afd_operator.controller.api import TIMEOUT_S
from afd_operator.controller.observe import Key
from afd_operator.placement.facts import Node, node_from_api
from afd_unit import labels

CONNECT_TIMEOUT_S = 5.0
STOP_WITHIN_S = 2.0

Json = Mapping[str, Any]

_CHILDREN = (
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("", "v1", "serviceaccounts"),
    ("apps", "v1", "deployments"),
)


class Ears:
    """`heard` is called with each key, `seen` with each node that changed and whether it is there; both on
    the loop that `listen` is called on. No `namespaces` are all namespaces."""

    def __init__(
        self,
        configuration: client.Configuration,
        namespaces: Collection[str],
        heard: Callable[[Key], None],
        seen: Callable[[Node, bool], None],
    ) -> None:
        self._configuration = configuration
        self._namespaces = namespaces
        self._heard = heard
        self._seen = seen
        self._stop = threading.Event()

    async def listen(self) -> None:
        """Until cancelled. Raises what kopf raises."""
        loop = asyncio.get_running_loop()
        ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        registry = self._registry(loop)

        def run() -> None:
            try:
                asyncio.run(
                    kopf.operator(
                        registry=registry,
                        settings=_settings(),
                        clusterwide=not self._namespaces,
                        namespaces=self._namespaces,
                        standalone=True,
                        stop_flag=self._stop,
                    )
                )
            except BaseException as error:  # the loop must hear of everything that ends its ears
                ended.set_exception(error)
            else:
                ended.set_result(None)

        # A daemon: a watch that hangs in a system call must not keep the process from ending.
        thread = threading.Thread(target=run, name="kopf", daemon=True)
        thread.start()
        try:
            await asyncio.wrap_future(ended)
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, STOP_WITHIN_S)

    def _registry(self, loop: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await _credentials(self._configuration)

        @kopf.on.event(afd.GROUP, afd.VERSION, afd.PLURAL, registry=registry)
        async def deployment(*, namespace: str | None, name: str, **_: Any) -> None:
            loop.call_soon_threadsafe(self._heard, Key(namespace or "", name))

        async def child(*, namespace: str | None, annotations: Mapping[str, str], **_: Any) -> None:
            if name := annotations.get(labels.DEPLOYMENT_NAME):
                loop.call_soon_threadsafe(self._heard, Key(namespace or "", name))

        for group, version, plural in _CHILDREN:
            kopf.on.event(group, version, plural, registry=registry, id=f"child-{plural}")(child)

        known: dict[str, Node] = {}

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node(*, event: Json, body: Json, **_: Any) -> None:
            found = node_from_api(body)
            there = event["type"] != "DELETED"
            # Kubelets write their Node every few minutes; only what placement looks at matters.
            if there and known.get(found.name) == found:
                return
            if there:
                known[found.name] = found
            else:
                known.pop(found.name, None)
            loop.call_soon_threadsafe(self._seen, found, there)

        return registry


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.watching.chunk_size = 500
    for _, _, plural in _CHILDREN:
        # On the server: a cluster has a hundred times more pods of others than of ours.
        settings.watching.label_selectors[plural] = labels.DEPLOYMENT
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.networking.request_timeout = TIMEOUT_S
    settings.networking.connect_timeout = CONNECT_TIMEOUT_S
    settings.execution.max_workers = 1
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # Warns that it does not get signals, since it is not in the main thread: that is what we want.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    return settings


class _NoDiffs(kopf.DiffBaseStorage):
    """Change handlers need a stored copy of every object; there are none, so there is no copy to make."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> Any:
        return {}

    def fetch(self, *, body: kopf.Body) -> Any:
        return {}

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: Any) -> None:
        """Nothing is stored."""


async def _credentials(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """The client's credentials in kopf's form. Called anew when the API server says 401: tokens of pods
    are renewed in place, and reading one refreshes it."""
    key = await configuration.get_api_key_with_prefix("BearerToken")
    scheme, _, token = (key or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        ca_data=configuration.ca_cert_data,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
