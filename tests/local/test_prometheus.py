"""A real Prometheus scrapes a real unit: the board has data in every panel, and the unit exports nothing
that the metrics table does not name."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests import prometheus
from tests.local.command import ROOT, serving, until

from afd_dashboards.unit import UNIT_BOARD
from afd_unit import metrics

DEMO = ROOT / "tests" / "models" / "demo"
DEPLOYMENT = "local/demo"
NAMES = {metric.name: metric for metric in metrics.ALL}


@dataclass(frozen=True)
class Unit:
    gateway: str
    """`host:port`, as a target of Prometheus is written."""
    coordinator: str

    @property
    def targets(self) -> tuple[str, str]:
        return (self.gateway, self.coordinator)

    def talk(self) -> None:
        """One of each: a chat and a completion that is cut."""
        with openai.OpenAI(base_url=f"http://{self.gateway}/v1", api_key="none", max_retries=0) as client:
            question = {"role": "user", "content": "Do you like music?"}
            client.chat.completions.create(model="demo", messages=[question], max_tokens=40)  # type: ignore[list-item]
            client.completions.create(model="demo", prompt="Emma was", max_tokens=8)


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unit]:
    with serving(DEMO, tmp_path_factory.mktemp("unit"), "--attention", "2", "--expert", "2") as command:
        pid = command.children()["coordinator"]
        arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        port = arguments[arguments.index("--http-port") + 1]
        yield Unit(gateway=f"127.0.0.1:{command.port}", coordinator=f"127.0.0.1:{port}")


@pytest.fixture(autouse=True)
def _prometheus_can_run() -> None:
    try:
        prometheus.command("prometheus")
    except prometheus.NoPrometheusError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def exposition(target: str) -> str:
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=30) as response:
        return str(response.read().decode())


def test_every_query_of_the_board_returns_data(unit: Unit, tmp_path: Path) -> None:
    empty: list[prometheus.EmptyQuery] = []

    def answered() -> bool:
        unit.talk()
        empty[:] = prometheus.check_board(url, UNIT_BOARD, deployment=DEPLOYMENT)
        return not empty

    with prometheus.scraping(unit.targets, tmp_path) as url:
        try:
            until(answered, "data in every panel")
        except AssertionError:
            pytest.fail("\n".join(f"{query.panel}: {query.promql}" for query in empty))


def test_a_board_of_another_deployment_is_empty(unit: Unit, tmp_path: Path) -> None:
    """So the test above can fail: only what falls back to zero has data for a deployment that is not."""
    queries = sum(len(panel.queries) for panel in UNIT_BOARD.panels)
    zeros = sum("or vector(0)" in query.promql for panel in UNIT_BOARD.panels for query in panel.queries)
    with prometheus.scraping(unit.targets, tmp_path) as url:
        until(lambda: prometheus.values(url, "up == 1") == [1.0, 1.0], "both targets up")
        assert len(prometheus.check_board(url, UNIT_BOARD, deployment="local/other")) == queries - zeros


def test_everything_exported_is_in_the_table(unit: Unit) -> None:
    unit.talk()
    for target in unit.targets:
        families = [
            f for f in text_string_to_metric_families(exposition(target)) if f.name.startswith("afd_")
        ]
        assert families
        for family in families:
            metric = NAMES[family.name]
            assert family.type == metric.kind
            for sample in family.samples:
                assert sample.name in metric.series
                assert set(sample.labels) - {"le"} == set(metric.labels), sample


def test_promtool_finds_nothing_to_say(unit: Unit) -> None:
    for target in unit.targets:
        promtool = [prometheus.command("promtool"), "check", "metrics"]
        subprocess.run(promtool, input=exposition(target), text=True, check=True)
