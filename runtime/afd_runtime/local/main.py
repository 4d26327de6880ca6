"""`afd serve --local MODEL`: all processes of a unit on this machine, restarted when they die."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from rich.console import Console

from afd_runtime.local import folder, layout
from afd_runtime.local.children import ChildFailedError, Children
from afd_runtime.local.layout import LocalError, Ports, Wanted
from afd_unit import logs
from afd_unit.ports import GATEWAY_HTTP

POLL_S = 0.1


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of at least 1")
    return int(text)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="afd serve", description=__doc__)
    parser.add_argument("model", type=Path, help="folder of config.json, *.safetensors, tokenizer.json")
    parser.add_argument("--local", action="store_true", required=True, help="on this machine (the only way)")
    parser.add_argument(
        "--attention", type=_count, default=1, metavar="M", help="attention workers; default 1"
    )
    parser.add_argument("--expert", type=_count, default=1, metavar="N", help="expert workers; default 1")
    parser.add_argument("--microbatches", type=_count, default=2, choices=range(1, 5), help="default 2")
    parser.add_argument(
        "--context-length", type=_count, help="tokens of prompt and answer; default: the model's"
    )
    parser.add_argument("--model-id", help="name that clients ask for; default: the folder's name")
    parser.add_argument("--host", default=layout.LOOPBACK, help="address to serve at; default %(default)s")
    parser.add_argument("--port", type=_count, default=GATEWAY_HTTP, help="default %(default)s")
    return parser.parse_args(argv)


def _wanted(options: argparse.Namespace) -> Wanted:
    model = options.model.resolve()
    layout.check(model)
    return Wanted(
        model=model,
        model_id=options.model_id or re.sub(r"\s+", "-", model.name),
        attention=options.attention,
        expert=options.expert,
        microbatches=options.microbatches,
        context_length=layout.context_length(model, options.context_length),
        host=options.host,
        port=options.port,
    )


def _free_ports() -> Ports:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(2)]
        for probe in sockets:
            probe.bind((layout.LOOPBACK, 0))
        return Ports(*(probe.getsockname()[1] for probe in sockets))


def _check_port(host: str, port: int) -> None:
    """Raises LocalError now, instead of letting the gateway fail over and over."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise LocalError(f"cannot serve at {host}:{port}: {error.strerror}; choose another --port") from error


async def _answer(session: aiohttp.ClientSession, url: str) -> tuple[bool, str]:
    """Whether it is ready, and what it says."""
    try:
        async with session.get(url) as answer:
            return answer.status == 200, (await answer.text()).strip()
    except (aiohttp.ClientError, TimeoutError):
        return False, "starts"


async def _until_ready(children: Children, ports: Ports, wanted: Wanted, console: Console) -> None:
    """Raises ChildFailedError."""
    coordinator = f"http://{layout.LOOPBACK}:{ports.coordinator_http}/ready"
    gateway = f"http://{wanted.host}:{wanted.port}/ready"
    with console.status("starts") as status:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                children.check()
                ready, said = await _answer(session, coordinator)
                if ready and (await _answer(session, gateway))[0]:
                    return
                status.update(f"{wanted.model_id}: {'gateway starts' if ready else said}")
                await asyncio.sleep(POLL_S)


async def serve(wanted: Wanted, console: Console) -> None:
    """Until SIGINT or SIGTERM. Raises ChildFailedError."""
    started_s = time.monotonic()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with folder.private_folder() as home:
        ports, secret, file = _free_ports(), home / "secret", home / "unit.json"
        unit = layout.unit_file(wanted, ports, secret)
        folder.write_private(secret, folder.new_secret())
        folder.write_private(file, layout.encoded(unit))
        children = Children(layout.processes(unit, wanted, ports, file, cores=os.cpu_count() or 1))
        children.start()
        try:
            ready = asyncio.create_task(_until_ready(children, ports, wanted, console))
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait([ready, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                ready.result()
                _announce(wanted, time.monotonic() - started_s)
                await stopped
            ready.cancel()
        finally:
            await children.end()


def _announce(wanted: Wanted, took_s: float) -> None:
    print(
        f"{wanted.model_id} is served at http://{wanted.host}:{wanted.port}/v1 by {wanted.attention} "
        f"attention and {wanted.expert} expert workers (ready in {took_s:.1f} s; Ctrl-C ends it)",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if argv is None else argv)
    # The processes log as they do in a cluster; here only what is wrong is of interest.
    os.environ.setdefault("AFD_LOG_LEVEL", "WARNING")
    logs.setup("local")
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    console = Console(stderr=True)
    try:
        wanted = _wanted(options)
        _check_port(wanted.host, wanted.port)
        asyncio.run(serve(wanted, console))
    except (LocalError, ChildFailedError) as error:
        print(f"afd serve: {error}", file=sys.stderr)
        return 1
    return 0
