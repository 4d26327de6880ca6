"""`afd worker coordinator`: one per unit, restarted in place when it ends. It keeps nothing on disk:
workers tell a new one what they hold, gateways submit what they own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Sequence

import zmq
from aiohttp import web

from afd_runtime.auth.choose import judge
from afd_runtime.auth.shown import NoCredentialError
from afd_runtime.coordinator.core import Coordinator
from afd_runtime.coordinator.http import application
from afd_runtime.coordinator.shell import Shell
from afd_runtime.metrics.coordinator import CoordinatorMetrics
from afd_unit import logs, ports, unitfile

log = logging.getLogger(__name__)

DATA_KEY_BYTES = 32


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="afd worker coordinator", description=__doc__)
    parser.add_argument(
        "--unit-file", default=os.environ.get("AFD_UNIT_FILE"), help="default: $AFD_UNIT_FILE"
    )
    parser.add_argument("--host", default="*", help="address to listen at; default: all")
    parser.add_argument(
        "--control-port", type=int, default=ports.COORDINATOR_CONTROL, help="default: %(default)s"
    )
    parser.add_argument("--http-port", type=int, default=ports.COORDINATOR_HTTP, help="default: %(default)s")
    parsed = parser.parse_args(argv)
    if not parsed.unit_file:
        parser.error("no unit file: set AFD_UNIT_FILE or give --unit-file")
    return parsed


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    unit = unitfile.read(options.unit_file)
    who = judge(unit, os.environ)
    metrics = CoordinatorMetrics(unit)
    core = Coordinator(
        unit,
        incarnation=secrets.randbits(63),
        new_key=lambda: secrets.token_bytes(DATA_KEY_BYTES),
        observer=metrics,
    )
    shell = Shell(core, who, metrics, address=f"tcp://{options.host}:{options.control_port}")
    runner = web.AppRunner(application(core, who, metrics), access_log=None)
    await runner.setup()
    host = None if options.host == "*" else options.host
    await web.TCPSite(runner, host, options.http_port).start()
    log.info(
        "listening", extra={"control": options.control_port, "http": options.http_port, "unit": unit.unit}
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    loop, stopped = asyncio.create_task(shell.run()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([loop, stopped], return_when=asyncio.FIRST_COMPLETED)
        if loop.done():
            loop.result()
    finally:
        loop.cancel()
        stopped.cancel()
        await runner.cleanup()
        shell.close()


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if argv is None else argv)
    logs.setup("coordinator")
    try:
        asyncio.run(serve(options))
    except (unitfile.UnitFileError, NoCredentialError, OSError, zmq.ZMQError) as error:
        log.error("cannot start", extra={"reason": error})
        return 1
    return 0
