"""`afd operator`: one process that listens, and works while it leads.

    http          always: health, readiness, metrics
    election      a standby waits here
    ears          events -> keys            (kopf, in a thread of its own)
    workers       keys -> reconciles        (at most one a key at a time)
    resync        every key, every few minutes: what no event told of

The first of them that ends takes the process with it: 0 after SIGTERM or SIGINT, 1 otherwise, and the
Deployment starts a new one. Nothing is kept in memory that a new process would miss.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

from kubernetes.aio import client, config

from afd_operator.controller import api as k8s
from afd_operator.controller import http, options
from afd_operator.controller.api import AFD, LEASE, Api, ApiError, Unreachable
from afd_operator.controller.apply import LookAgain, Refused
from afd_operator.controller.ears import Ears
from afd_operator.controller.election import Election
from afd_operator.controller.metrics import Metrics
from afd_operator.controller.observe import Key
from afd_operator.controller.options import Options
from afd_operator.controller.queue import WorkQueue
from afd_operator.controller.reconcile import Reconciler
from afd_operator.controller.reports import Reports
from afd_operator.placement import reservation
from afd_operator.placement.facts import Node
from afd_unit import labels, logs

RESYNC_S = 300.0
STOP_WITHIN_S = 3.0
"""Of the 5 s in which the process ends after SIGTERM."""

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    given = options.parse(sys.argv[1:] if argv is None else argv)
    logs.setup("operator")
    try:
        return asyncio.run(_run(given))
    except config.ConfigException as error:
        logger.error("no cluster to work in", extra={"error": error, "kubeconfig": given.kubeconfig})
    except OSError as error:
        logger.error("cannot start", extra={"error": error})
    return 1


async def _run(given: Options) -> int:
    metrics = Metrics()
    configuration = await k8s.load(given.kubeconfig)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        http.serving(metrics, given.http_host, given.http_port) as port,
        Api(configuration, metrics.api_answered) as api,
    ):
        logger.info("started", extra={"identity": given.identity, "namespace": given.namespace, "port": port})
        election = Election(api, given.namespace, given.identity)
        stopped = asyncio.create_task(stop.wait())
        if not await _first(asyncio.create_task(election.acquire()), stopped):
            return 0
        metrics.leads(True)
        work = asyncio.create_task(_work(given, api, configuration, metrics))
        held = asyncio.create_task(election.hold())
        await _first(held, work, stopped)
        lost = held.done()
        held.cancel()
        work.cancel()
        # What fails while it ends is of no interest any more; what made it end is.
        await asyncio.wait([work], timeout=STOP_WITHIN_S)
        if not lost:
            await election.give_up()
        if work.done() and not work.cancelled() and (error := work.exception()):
            logger.error("cannot go on", exc_info=error)
        return 0 if stopped.done() and not lost else 1


async def _first(first: asyncio.Task[None], *others: asyncio.Task[object]) -> bool:
    """Wait until one of the tasks ends; True if the first did. It is cancelled if it did not."""
    await asyncio.wait([first, *others], return_when=asyncio.FIRST_COMPLETED)
    if not first.done():
        first.cancel()
        return False
    return True


async def _work(given: Options, api: Api, configuration: client.Configuration, metrics: Metrics) -> None:
    """Listen and reconcile until cancelled; ends, with an exception, if a part of it does."""
    queue: WorkQueue[Key] = WorkQueue()
    metrics.depth_from(queue.depth)
    reports = Reports(given.token_file)
    reconciler = Reconciler(api, reports, metrics, given, queue.add)
    fleet = _Fleet(queue, reconciler, metrics)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(Ears(configuration, given.watch_namespaces, queue.add, fleet.seen).listen())
            group.create_task(_resync(api, queue, reconciler, given))
            for _ in range(given.workers):
                group.create_task(_worker(queue, reconciler, metrics))
    finally:
        await reports.close()


async def _worker(queue: WorkQueue[Key], reconciler: Reconciler, metrics: Metrics) -> None:
    """Take a key, look at it, decide when to look again."""
    while True:
        key = await queue.get()
        started, failure = time.monotonic(), None
        try:
            again = await reconciler.reconcile(key)
            queue.succeeded(key)
            if again is not None:
                queue.add_after(key, again)
        except (LookAgain, Refused, ApiError, Unreachable) as error:
            failure = type(error).__name__
            level = logging.INFO if isinstance(error, LookAgain) else logging.WARNING
            pause = queue.retry(key)
            extra = {"deployment": key, "error": error, "pause_s": f"{pause:.1f}"}
            logger.log(level, "looks again", extra=extra)
        except Exception as error:
            # A mistake of ours about one deployment must not take the others down with it.
            failure = type(error).__name__
            logger.exception("reconcile failed", extra={"deployment": key, "pause_s": queue.retry(key)})
        finally:
            queue.done(key)
            metrics.reconciled(time.monotonic() - started, failure)


async def _resync(api: Api, queue: WorkQueue[Key], reconciler: Reconciler, given: Options) -> None:
    """Every few minutes, and first of all: every deployment, and everybody who holds a domain. So what
    happened while no operator ran is found, a reservation whose holder is gone among it."""
    while True:
        try:
            keys = await _known(api, given)
        except (ApiError, Unreachable) as error:
            logger.warning("resync postponed", extra={"error": error})
            await asyncio.sleep(10)
            continue
        for key in keys | set(reconciler.standings):
            queue.add(key)
        await asyncio.sleep(RESYNC_S * random.uniform(0.8, 1.2))


async def _known(api: Api, given: Options) -> set[Key]:
    keys = set()
    for namespace in given.watch_namespaces or (None,):
        async for body in api.all(AFD, namespace):
            keys.add(Key(body["metadata"]["namespace"], body["metadata"]["name"]))
    async for lease in api.all(LEASE, given.namespace, labels=reservation.SELECTOR):
        if found := reservation.from_lease(lease):
            keys.add(Key(found.holder.namespace, found.holder.name))
    return {key for key in keys if not given.watch_namespaces or key.namespace in given.watch_namespaces}


class _Fleet:
    """The nodes as the watch shows them: for metrics, and to wake whom a change concerns."""

    def __init__(self, queue: WorkQueue[Key], reconciler: Reconciler, metrics: Metrics) -> None:
        self._queue = queue
        self._reconciler = reconciler
        self._metrics = metrics
        self._nodes: dict[str, Node] = {}

    def seen(self, node: Node, there: bool) -> None:
        if there:
            self._nodes[node.name] = node
        else:
            self._nodes.pop(node.name, None)
        for key, standing in self._reconciler.standings.items():
            if standing.waits_for_domain or node.name in standing.nodes:
                self._queue.add(key)
        counts: Counter[tuple[str, str]] = Counter()
        for found in self._nodes.values():
            if domain := found.labels.get(labels.CLIQUE):
                usable = found.ready and found.schedulable
                counts[domain, "usable" if usable else "unusable"] += 1
        self._metrics.domains([(domain, state, count) for (domain, state), count in counts.items()])


if __name__ == "__main__":
    sys.exit(main())
