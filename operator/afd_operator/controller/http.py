"""`/healthz` (the process lives), `/readyz` (it can do its work), `/metrics`.

Ready means that the API server answered lately: a leader renews its Lease every 2 s and a standby looks
at it as often, so a silence of 15 s is a broken connection. Being leader is not asked for, else a rolling
update of the operator would wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from afd_operator.controller.metrics import Metrics

SILENCE_S = 15.0


@asynccontextmanager
async def serving(metrics: Metrics, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the context ends; gives the port. Raises OSError if it is taken."""

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        silence = time.monotonic() - metrics.last_success if metrics.last_success else None
        if silence is not None and silence <= SILENCE_S:
            return web.Response(text="ok\n")
        since = "has not answered yet" if silence is None else f"answered last {silence:.0f} s ago"
        return web.Response(status=503, text=f"the API server {since}\n")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", health), web.get("/readyz", ready), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
