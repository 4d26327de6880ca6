"""What the coordinator answers over HTTP.

/status    the unit report, JSON; shows a bearer token that the judge accepts
/health    200 while the process lives
/ready     200 while the unit serves, else 503 with what it waits for
/metrics   Prometheus text
"""

from __future__ import annotations

import time

from aiohttp import web

from afd_runtime.auth.judge import DeniedError, Judge
from afd_runtime.coordinator.core import Coordinator
from afd_runtime.coordinator.report import report
from afd_runtime.metrics.coordinator import CoordinatorMetrics
from afd_runtime.metrics.registry import CONTENT_TYPE
from afd_unit.report import UnitState, encode


def application(core: Coordinator, judge: Judge, metrics: CoordinatorMetrics) -> web.Application:
    async def status(request: web.Request) -> web.Response:
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return web.Response(
                status=401, headers={"WWW-Authenticate": "Bearer"}, text="a bearer token, please\n"
            )
        try:
            await judge.status_reader(credential.strip())
        except DeniedError as error:
            return web.Response(status=403, text=f"{error}\n")
        return web.Response(body=encode(report(core, time.monotonic())), content_type="application/json")

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        state = core.epochs.state
        if state is UnitState.SERVING:
            return web.Response(text="serving\n")
        return web.Response(status=503, text=f"{state}: waits for {core.waiting_for(time.monotonic())}\n")

    async def exposition(_: web.Request) -> web.Response:
        body = metrics.exposition(core, time.monotonic())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    app = web.Application(client_max_size=1 << 16)
    app.add_routes(
        [
            web.get("/status", status),
            web.get("/health", health),
            web.get("/ready", ready),
            web.get("/metrics", exposition),
        ]
    )
    return app
