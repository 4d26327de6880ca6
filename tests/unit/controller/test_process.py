"""The operator's process at its edges: flags, metrics, health, and what it does without a cluster."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from afd_operator.controller import http, options
from afd_operator.controller.main import main
from afd_operator.controller.metrics import Metrics
from afd_unit import metrics as registry


def test_flags_and_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "afd-system")
    monkeypatch.setenv("POD_SERVICE_ACCOUNT", "op")
    monkeypatch.setenv("AFD_TOKEN_FILE", "/var/run/secrets/afd/token")
    given = options.parse(["--watch-namespace", "a", "--watch-namespace=b"])
    assert given.status_reader == "afd-system/op"
    assert given.token_file == Path("/var/run/secrets/afd/token")
    assert given.watch_namespaces == ("a", "b")


@pytest.mark.parametrize("argv", [["--workers", "0"], ["--http-port", "x"], ["--no-such-flag"]])
def test_wrong_flags_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        options.parse(argv)
    assert exit.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_without_a_cluster_it_says_so_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    missing = str(tmp_path / "none")
    assert main(["--kubeconfig", missing, "--http-host", "127.0.0.1", "--http-port", "0"]) == 1
    said = capfd.readouterr().err
    assert "no cluster to work in" in said
    assert missing in said


def exposed(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        f"{sample.name}{sorted(sample.labels.values()) or ''}": sample.value
        for family in families
        for sample in family.samples
    }


def test_every_metric_of_the_registry_is_exposed_and_no_other() -> None:
    families = {
        family.name
        for family in text_string_to_metric_families(Metrics().exposition().decode())
        if not family.name.endswith("_created")
    }
    assert families == {metric.name for metric in registry.OPERATOR}


def test_deployments_are_counted_by_state_and_forgotten_when_they_are_gone() -> None:
    metrics = Metrics()
    metrics.deployments(["ready", "ready", "stalled"])
    metrics.nodes("prod/demo", [("attention", "ready", 3)])
    metrics.domains([("a.1", "usable", 18)])
    found = exposed(metrics)
    assert found["afd_operator_deployments['ready']"] == 2
    assert found["afd_operator_nodes['attention', 'prod/demo', 'ready']"] == 3
    assert found["afd_operator_nvlink_domain_nodes['a.1', 'usable']"] == 18

    metrics.deployments(["ready"])
    metrics.forget("prod/demo")
    metrics.domains([])
    assert not [
        name for name in exposed(metrics) if "prod/demo" in name or "stalled" in name or "a.1" in name
    ]


def test_reconciles_are_counted_by_what_they_came_to() -> None:
    metrics = Metrics()
    metrics.reconciled(0.1, None)
    metrics.reconciled(0.2, "Unreachable")
    found = exposed(metrics)
    assert found["afd_operator_reconcile_total['success']"] == 1
    assert found["afd_operator_reconcile_total['error']"] == 1
    assert found["afd_operator_reconcile_errors_total['Unreachable']"] == 1
    assert found["afd_operator_reconcile_duration_seconds_count"] == 2


async def test_ready_only_while_the_api_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    async with http.serving(metrics, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status, await answer.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "the API server has not answered yet\n")
        metrics.api_answered()
        assert await ask("/readyz") == (200, "ok\n")
        metrics.last_success -= 60
        status, text = await ask("/readyz")
        assert (status, text.startswith("the API server answered last 6")) == (503, True)
        status, text = await ask("/metrics")
        assert (status, "afd_operator_leader 0.0" in text) == (200, True)
