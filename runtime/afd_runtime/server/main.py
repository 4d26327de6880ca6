"""`afd worker gateway`: any number per deployment, without state that outlives its connections.

AFD_COORDINATORS     host:port[,host:port...] of the units' coordinators; a host may be many
AFD_DEPLOYMENT       namespace/name, for metrics
AFD_MODEL_ID         name under which clients ask for the model
AFD_MODEL_PATH       folder of tokenizer.json, generation_config.json
AFD_CONTEXT_LENGTH   most tokens of prompt and answer together
AFD_TOKEN_FILE       the credential to show to coordinators
AFD_POD_NAME         name of this gateway; default: the host's
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from afd_runtime.auth import shown
from afd_runtime.metrics.gateway import GatewayMetrics
from afd_runtime.server import defaults, tokenizer
from afd_runtime.server.http import Gateway
from afd_runtime.server.units import Units
from afd_unit import logs, ports

log = logging.getLogger(__name__)

DRAIN_S = 60.0
"""After SIGTERM: how long running answers may take to end before their connections are closed."""


class SettingsError(RuntimeError):
    """The environment does not say what the gateway needs."""


@dataclass(frozen=True)
class Settings:
    coordinators: tuple[str, ...]
    deployment: str
    model_id: str
    model_path: str
    context_length: int
    credential: str
    name: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Settings:
        """Raises SettingsError or NoCredentialError."""
        needed = (
            "AFD_COORDINATORS",
            "AFD_DEPLOYMENT",
            "AFD_MODEL_ID",
            "AFD_MODEL_PATH",
            "AFD_CONTEXT_LENGTH",
        )
        missing = [name for name in needed if not environ.get(name)]
        if missing:
            raise SettingsError(f"not set: {', '.join(missing)}")
        coordinators = tuple(environ["AFD_COORDINATORS"].split(","))
        for coordinator in coordinators:
            host, _, port = coordinator.rpartition(":")
            if not (host and port.isdigit()):
                raise SettingsError(f"AFD_COORDINATORS has {coordinator!r}, must be host:port")
        if not (environ["AFD_CONTEXT_LENGTH"].isdigit() and int(environ["AFD_CONTEXT_LENGTH"])):
            raise SettingsError(f"AFD_CONTEXT_LENGTH is {environ['AFD_CONTEXT_LENGTH']!r}, must be a count")
        return cls(
            coordinators=coordinators,
            deployment=environ["AFD_DEPLOYMENT"],
            model_id=environ["AFD_MODEL_ID"],
            model_path=environ["AFD_MODEL_PATH"],
            context_length=int(environ["AFD_CONTEXT_LENGTH"]),
            credential=shown.path(environ),
            name=environ.get("AFD_POD_NAME") or socket.gethostname(),
        )


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="afd worker gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="*", help="address to listen at; default: all")
    parser.add_argument("--port", type=int, default=ports.GATEWAY_HTTP, help="default: %(default)s")
    return parser.parse_args(argv)


async def serve(options: argparse.Namespace, settings: Settings) -> None:
    """Until SIGTERM or SIGINT; then running answers may end."""
    units = Units(
        settings.coordinators,
        model_id=settings.model_id,
        name=settings.name,
        credential=settings.credential,
    )
    gateway = Gateway(
        model_id=settings.model_id,
        context_length=settings.context_length,
        tokenizer=await asyncio.to_thread(tokenizer.load, settings.model_path),
        defaults=defaults.load(settings.model_path),
        units=units,
        metrics=GatewayMetrics(deployment=settings.deployment, model_id=settings.model_id),
        created=int(time.time()),
    )
    # A client that hangs up ends its handler, and with it the request.
    runner = web.AppRunner(
        gateway.application(), access_log=None, handler_cancellation=True, shutdown_timeout=DRAIN_S
    )
    await runner.setup()
    await web.TCPSite(runner, None if options.host == "*" else options.host, options.port).start()
    log.info("listening", extra={"port": options.port, "model": settings.model_id})
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    links, stopped = asyncio.create_task(units.run()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([links, stopped], return_when=asyncio.FIRST_COMPLETED)
        if links.done():
            links.result()
    finally:
        stopped.cancel()
        await runner.cleanup()
        links.cancel()
        await asyncio.gather(links, return_exceptions=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if argv is None else argv)
    logs.setup("gateway")
    try:
        asyncio.run(serve(options, Settings.of(os.environ)))
    except (
        SettingsError,
        shown.NoCredentialError,
        tokenizer.TokenizerError,
        defaults.DefaultsError,
        OSError,
    ) as error:
        log.error("cannot start", extra={"reason": error})
        return 1
    return 0
