"""A real Prometheus (Debian's package `prometheus`) on loopback, and whether a board has data in it.

Where the package is not installed its two commands are unpacked into the cache folder instead: installing
it would start a Prometheus on the machine.

with scraping(["127.0.0.1:8000"], folder) as url:
    empty = check_board(url, UNIT_BOARD, deployment="default/demo")
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afd_dashboards.spec import Board
from tests.rack import cache

PACKAGE = "prometheus"
SCRAPE_INTERVAL_S = 1
RATE_INTERVAL = "1m"
"""What Grafana would put for $__rate_interval, wide enough for a busy machine to scrape twice in it."""
START_S = 60.0


@dataclass(frozen=True)
class EmptyQuery:
    """A query of a board that returned no number."""

    panel: str
    promql: str


class NoPrometheusError(RuntimeError):
    """It is not installed and cannot be fetched; the message says why."""


def command(name: str) -> str:
    """Path of `prometheus` or `promtool`. Raises NoPrometheusError."""
    installed = shutil.which(name)
    return installed or str(cache.entry("debian", PACKAGE, _unpack) / "usr" / "bin" / name)


@contextlib.contextmanager
def scraping(targets: Iterable[str], folder: Path) -> Iterator[str]:
    """The URL of a Prometheus that scrapes `host:port` targets every second; ended afterwards.

    `folder` must exist; data, configuration and log stay in it.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config, log = folder / "prometheus.json", folder / "prometheus.log"
    job = {"job_name": "afd", "static_configs": [{"targets": list(targets)}]}
    # Prometheus reads YAML, of which JSON is a part.
    config.write_text(
        json.dumps({"global": {"scrape_interval": f"{SCRAPE_INTERVAL_S}s"}, "scrape_configs": [job]})
    )
    arguments = [
        command("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with log.open("w") as file:
        process = subprocess.Popen(arguments, stdout=file, stderr=file)
    try:
        _until_ready(process, f"http://{address}", log)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def check_board(url: str, board: Board, *, deployment: str, unit: str = ".*") -> list[EmptyQuery]:
    """The queries of `board` that have no data now for `deployment` ("namespace/name"); all, in order.

    Raises ValueError when Prometheus refuses a query.
    """
    chosen = {"$__rate_interval": RATE_INTERVAL, "$deployment": deployment, "$unit": unit}
    empty = []
    for panel in board.panels:
        for query in panel.queries:
            promql = query.promql
            for variable, value in chosen.items():
                promql = promql.replace(variable, value)
            # NaN is what a quantile of no observations is: a gap in the panel.
            if all(math.isnan(value) for value in values(url, promql)):
                empty.append(EmptyQuery(panel.title, promql))
    return empty


def values(url: str, promql: str) -> list[float]:
    """The current value of every series that a query returns."""
    try:
        answer = _get(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}")
    except urllib.error.HTTPError as refused:
        raise ValueError(f"{promql}: {refused.read().decode()}") from refused
    return [float(series["value"][1]) for series in answer["data"]["result"]]


def _unpack(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise NoPrometheusError("prometheus is not installed, and this machine has no apt-get to fetch it")
    download = ["apt-get", "download", "-q", PACKAGE]
    fetched = _run(download, folder)
    if fetched.returncode and os.geteuid() == 0:
        _run(["apt-get", "update", "-q"], folder)
        fetched = _run(download, folder)
    if fetched.returncode:
        raise NoPrometheusError(f"`apt-get download {PACKAGE}` failed: {fetched.stdout[-500:]}")
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    package.unlink()


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def _until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"prometheus did not start:\n{log.read_text()}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=5):
            return
        time.sleep(0.05)


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.load(response)
