"""What the operator's process is told: flags, each with its environment variable."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Options:
    """`identity` names this process in the leader's Lease, `service_account` the account that it runs as."""

    namespace: str
    service_account: str
    identity: str
    kubeconfig: str | None
    token_file: Path | None
    watch_namespaces: tuple[str, ...]
    """Only AFDDeployments of these are acted on; empty: of all."""
    http_host: str
    http_port: int
    workers: int

    @property
    def status_reader(self) -> str:
        """The account that coordinators let read their status."""
        return f"{self.namespace}/{self.service_account}"


def parse(argv: Sequence[str]) -> Options:
    """Exits with a message if a flag is wrong, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="afd operator",
        description="Turns AFDDeployments into units that run, each in one NVLink domain.",
    )

    def option(flag: str, variable: str, default: str | None, help: str) -> None:
        parser.add_argument(flag, default=os.environ.get(variable, default), help=f"{help} (${variable})")

    option("--namespace", "POD_NAMESPACE", _own_namespace(), "namespace of the operator and its Leases")
    option("--service-account", "POD_SERVICE_ACCOUNT", "afd-operator", "name of its own ServiceAccount")
    option("--identity", "POD_NAME", socket.gethostname(), "name of this process in the leader's Lease")
    option("--kubeconfig", "KUBECONFIG", None, "cluster to work in; default: the one that it runs in")
    option("--token-file", "AFD_TOKEN_FILE", None, "token by which coordinators know the operator")
    parser.add_argument(
        "--watch-namespace",
        dest="watch_namespaces",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="act on AFDDeployments of this namespace only; may be given more than once",
    )
    parser.add_argument("--http-host", default="0.0.0.0", help="address of /healthz, /readyz, /metrics")
    parser.add_argument("--http-port", type=int, default=8080, help="its port; 0 takes a free one")
    parser.add_argument("--workers", type=int, default=8, help="deployments worked on at the same time")
    given = parser.parse_args(argv)
    if given.workers < 1:
        parser.error(f"--workers {given.workers}: must be at least 1")
    token_file = Path(given.token_file) if given.token_file else None
    namespaces = tuple(given.watch_namespaces)
    return Options(**{**vars(given), "token_file": token_file, "watch_namespaces": namespaces})


def _own_namespace() -> str:
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
