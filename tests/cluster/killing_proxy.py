"""An API server that kills its client after the n-th write: the operator, between any two of its writes.

Plain HTTP in front of the real API server. Requests pass through with their credentials; reads and
watches stream. Writes are counted when their answer is complete, except renewals of the leader's Lease.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aiohttp
from aiohttp import web

_HOP_BY_HOP = {"host", "content-length", "transfer-encoding", "connection"}
_LEADER = re.compile(r"/leases(/afd-operator)?$")


class KillingProxy:
    """`fatal` is the number of the write after which the process `victim` dies; 0 for none."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.port = 0
        self.fatal = 0
        self.victim: int | None = None
        self.writes: list[str] = []
        """Of the present life."""

    def arm(self, victim: int, fatal: int) -> None:
        """Count from zero for a new life."""
        self.victim, self.fatal = victim, fatal
        self.writes = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        # The certificate is not what is tested here; the proxy speaks to a server that it was given.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), timeout=timeout, auto_decompress=False
        ) as session:

            async def pass_on(request: web.Request) -> web.StreamResponse:
                return await self._pass_on(session, request)

            app = web.Application(client_max_size=16 << 20)
            app.router.add_route("*", "/{path:.*}", pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            started.set()
            await stop.wait()
            await runner.cleanup()

    async def _pass_on(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        body = await request.read()
        async with session.request(
            request.method, f"{self._server}{request.rel_url}", headers=headers, data=body or None
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if self._counts(request):
                content = await answer.read()
                self._count(f"{request.method} {request.path}")
                return web.Response(status=answer.status, headers=kept, body=content)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with suppress(ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response

    def _counts(self, request: web.Request) -> bool:
        if request.method == "GET":
            return False
        # The leader's Lease is created by a POST to the list, as reservations are: told apart by its size.
        return not (_LEADER.search(request.path) and request.method in ("PUT", "PATCH"))

    def _count(self, write: str) -> None:
        self.writes.append(write)
        if len(self.writes) == self.fatal and self.victim is not None:
            with suppress(ProcessLookupError):
                os.kill(self.victim, signal.SIGKILL)


@contextmanager
def killing_proxy(server: str) -> Iterator[KillingProxy]:
    """A proxy in front of `server`, in a thread of its own."""
    proxy = KillingProxy(server)
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.serve(started, stop)))
    thread.start()
    try:
        assert started.wait(10), "the proxy did not start"
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
