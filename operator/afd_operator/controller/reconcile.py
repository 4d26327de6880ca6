"""One key, one look: observe, plan, apply, write the status, tell of what changed.

sight ──► plan ──► needs the cluster? look at it, plan again
            │
            ├─► actions, in order; the first that fails ends the reconcile (the next look finds out where
            │   it stands). What the API server refuses for good becomes a condition.
            └─► status, if it differs from the one that was read; events for conditions that changed
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from afd_operator.api.deployment import API_VERSION, KIND
from afd_operator.api.load import InvalidDeployment, parse
from afd_operator.api.status import AFDDeploymentStatus
from afd_operator.controller import observe
from afd_operator.controller.api import AFD, Api, Conflict, Json, NotFound
from afd_operator.controller.apply import LookAgain, Refused, perform
from afd_operator.controller.events import happenings, post
from afd_operator.controller.metrics import Metrics
from afd_operator.controller.observe import Key, Sight
from afd_operator.controller.options import Options
from afd_operator.controller.reports import Reports
from afd_operator.lifecycle.actions import Action, DeletePod, Release, Reserve
from afd_operator.lifecycle.observed import Refusal
from afd_operator.lifecycle.orphans import orphans
from afd_operator.lifecycle.plan import Plan, plan
from afd_operator.lifecycle.status import invalid_status, nodes_by_role, read_status

AGAIN_S = 1.0
"""After actions we look again without waiting for their events: a Lease, for one, sends us none."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Standing:
    """What is remembered of a deployment between looks: for metrics, and for whom to wake when."""

    state: str
    waits_for_domain: bool
    nodes: frozenset[str]


class Reconciler:
    """Stateless but for `standings`, which decide nothing: only when to look and what metrics say.

    `wake` is called with keys that a released domain may help.
    """

    def __init__(
        self, api: Api, reports: Reports, metrics: Metrics, options: Options, wake: Callable[[Key], None]
    ) -> None:
        self._api = api
        self._reports = reports
        self._metrics = metrics
        self._options = options
        self._wake = wake
        self.standings: dict[Key, Standing] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Returns after how many seconds to look again at the latest. Raises LookAgain, Refused, ApiError,
        Unreachable: look again after a pause."""
        sight = await observe.sight(self._api, key, self._options.namespace)
        await self._release_orphans(key, sight)
        body = sight.body
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(key)
            return AGAIN_S if self._held_by(key, sight) else None
        try:
            found = await self._plan(key, sight, ())
        except InvalidDeployment as error:
            logger.warning("spec not readable", extra={"deployment": key, "error": error})
            await self._write_status(body, invalid_status(body, str(error), _now()))
            return None
        try:
            await self._act(key, found.actions)
        except Refused as error:
            sight = await observe.sight(self._api, key, self._options.namespace)
            if sight.body is not None:
                found = await self._plan(key, sight, (error.refusal,))
                await self._finish(key, sight.body, found)
            raise
        await self._finish(key, body, found)
        return AGAIN_S if found.actions else found.requeue_after_s

    async def _plan(self, key: Key, sight: Sight, refusals: tuple[Refusal, ...]) -> Plan:
        assert sight.body is not None
        deployment = parse(sight.body)
        reports = await self._reports.of(key, sight.observed.pods)
        observed = replace(sight.observed, reports=reports, refusals=refusals)
        reader = self._options.status_reader
        found = plan(deployment, observed, _now(), status_reader=reader)
        if found.needs_cluster:
            room = await observe.cluster(self._api, observed.reservations)
            claim = await observe.claim_exists(self._api, deployment)
            observed = replace(observed, cluster=room, claim_exists=claim)
            found = plan(deployment, observed, _now(), status_reader=reader)
        return found

    async def _act(self, key: Key, actions: Iterable[Action]) -> None:
        counts: Counter[str] = Counter()
        try:
            for action in actions:
                await perform(
                    self._api, action, namespace=key.namespace, operator_namespace=self._options.namespace
                )
                counts[type(action).__name__] += 1
                self._tell(key, action)
        finally:
            if counts:
                done = " ".join(f"{name}:{count}" for name, count in counts.items())
                logger.info("acted", extra={"deployment": key, "actions": done})

    def _tell(self, key: Key, action: Action) -> None:
        match action:
            case Reserve(_, domain, holder):
                extra = {"deployment": key, "unit": holder.id.unit, "domain": domain}
                logger.info("domain reserved", extra=extra)
            case Release(reservation):
                extra = {"holder": reservation.holder, "domain": reservation.domain}
                logger.info("domain released", extra=extra)
                self._wake_waiting()
            case DeletePod(name, _, why):
                logger.info("pod deleted", extra={"deployment": key, "pod": name, "why": why})

    async def _release_orphans(self, key: Key, sight: Sight) -> None:
        """What former deployments of this name held; and a deployment that is going holds nothing new."""
        body, observed = sight.body, sight.observed
        going = body is not None and "deletionTimestamp" in body["metadata"]
        releases = orphans(
            key.namespace,
            key.name,
            None if going else sight.uid,
            observed.reservations,
            (*observed.pods, *observed.former_pods),
        )
        await self._act(key, releases)

    def _held_by(self, key: Key, sight: Sight) -> bool:
        """A former deployment of this name has pods that are not gone yet."""
        return bool(sight.observed.pods or sight.observed.former_pods) and any(
            (r.holder.namespace, r.holder.name) == (key.namespace, key.name)
            for r in sight.observed.reservations
        )

    async def _finish(self, key: Key, body: Json, found: Plan) -> None:
        await self._write_status(body, found.status)
        self.standings[key] = Standing(
            state=_state(found.status),
            waits_for_domain=any(unit.plan.obstacle for unit in found.outcome.units),
            nodes=frozenset(pod.node for unit in found.outcome.units for pod in unit.view.bound if pod.node),
        )
        self._metrics.deployments(standing.state for standing in self.standings.values())
        self._metrics.nodes(
            str(key),
            [
                (role, "ready" if ready else "not_ready", count)
                for (role, ready), count in nodes_by_role(found.outcome).items()
            ],
        )

    async def _write_status(self, body: Json, status: AFDDeploymentStatus) -> None:
        before = read_status(body)
        if status.dump() == before.dump():
            return
        metadata = body["metadata"]
        identity = {name: metadata[name] for name in ("name", "namespace", "uid")}
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": identity,
            "status": status.dump(),
        }
        try:
            await self._api.apply(AFD, manifest, subresource="status")
        except NotFound:
            return
        except Conflict as error:
            raise LookAgain("the deployment was replaced in this moment") from error
        for happening in happenings(before, status):
            await post(self._api, body, happening, self._options.identity)

    def _forget(self, key: Key) -> None:
        if self.standings.pop(key, None) is not None:
            self._metrics.deployments(standing.state for standing in self.standings.values())
            self._metrics.forget(str(key))

    def _wake_waiting(self) -> None:
        for key, standing in self.standings.items():
            if standing.waits_for_domain:
                self._wake(key)


def _state(status: AFDDeploymentStatus) -> str:
    """One word for the metric: ready, stalled, degraded or reconciling."""
    true = {condition.type for condition in status.conditions if condition.status == "True"}
    for kind, word in (("Ready", "ready"), ("Stalled", "stalled"), ("Degraded", "degraded")):
        if kind in true:
            return word
    return "reconciling"


def _now() -> datetime:
    return datetime.now(UTC)
