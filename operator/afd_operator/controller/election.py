"""One operator writes at a time: the Lease `afd-operator`, with the protocol and times of client-go.

    acquire ──► hold (renew every 2 s) ──► lost (no renewal for 10 s): the process must end
                  │
                  └── give_up on a clean exit: the next one need not wait for the 15 s to pass

The official client's election (kubernetes.aio.leaderelection) has no time-out of its own on a renewal, so
a hanging connection would make two leaders; and it does not give the Lease up. Hence these lines.

Clocks of two machines are never compared: a Lease is taken over when it has not changed for its duration
on *our* clock. Even two leaders would not break a unit, because a domain is taken by a create that only
one can win; they would get in one another's way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

from afd_operator.controller.api import LEASE, Api, ApiError, Conflict, Json, Unreachable

NAME = "afd-operator"
DURATION_S = 15
RENEW_WITHIN_S = 10
RETRY_S = 2
"""Defaults of client-go's LeaderElectionConfig as controller-runtime sets them."""

logger = logging.getLogger(__name__)


class Election:
    """One candidate."""

    def __init__(self, api: Api, namespace: str, identity: str) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._seen: tuple[str, float] = ("", 0.0)
        """The Lease's resourceVersion as last seen, and when we first saw it so."""

    async def acquire(self) -> None:
        """Returns once this candidate is the leader."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(RETRY_S)
        logger.info("leads", extra={"identity": self._identity})

    async def hold(self) -> None:
        """Renews; returns when leadership is lost."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < RENEW_WITHIN_S:
            await asyncio.sleep(RETRY_S)
            started = time.monotonic()
            left = RENEW_WITHIN_S - (started - renewed)
            try:
                if await asyncio.wait_for(self._try(), timeout=max(0.1, left)):
                    renewed = started
            except TimeoutError:
                continue
        logger.error("lost the lead", extra={"identity": self._identity})

    async def give_up(self) -> None:
        """On a clean exit: let the next candidate start at once."""
        try:
            lease = await self._api.get(LEASE, self._namespace, NAME)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASE, lease)
        except (ApiError, Unreachable) as error:
            logger.info("kept the Lease to its end", extra={"error": error})

    async def _try(self) -> bool:
        """One attempt to take or renew the Lease."""
        try:
            lease = await self._api.get(LEASE, self._namespace, NAME)
            if lease is None:
                await self._api.create(LEASE, self._record({}))
                return True
            if not self._may_take(lease):
                return False
            await self._api.replace(LEASE, self._record(lease))
        except Conflict:
            return False
        except (ApiError, Unreachable) as error:
            logger.warning("cannot reach the Lease", extra={"error": error})
            return False
        return True

    def _may_take(self, lease: Json) -> bool:
        version, spec = lease["metadata"]["resourceVersion"], lease["spec"]
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        holder = spec.get("holderIdentity")
        expired = time.monotonic() - self._seen[1] > spec.get("leaseDurationSeconds", DURATION_S)
        return not holder or holder == self._identity or expired

    def _record(self, lease: Json) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = lease.get("spec", {})
        again = spec.get("holderIdentity") == self._identity
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease.get("metadata", {"name": NAME, "namespace": self._namespace}),
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": spec.get("acquireTime", now) if again else now,
                "renewTime": now,
                "leaseTransitions": spec.get("leaseTransitions", 0) + (not again),
            },
        }
