"""The control plane: etcd, API server, controller manager and scheduler, as one would run them, for an hour.

Two places to run it in:

    a rack without real nodes    processes on 127.0.0.1, no privileges needed
    a rack with real nodes       inside the router's network namespace, at an address that pods can reach

Data is not worth a disk write here (`--unsafe-no-fsync`). Everything else is as strict as on a good
cluster: RBAC, NodeRestriction, a certificate for each party, and Pod Security `restricted` for every
namespace. The audit log counts: each request at level Metadata, one JSON object a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rack.binaries import Binaries
from tests.rack.pki import Authority, service_account_keys

ISSUER = "https://kubernetes.default.svc.cluster.local"
NODE_GRACE_S = 20
"""A node without heartbeat for so long is marked NotReady (default 50 s: tests wait for it)."""
NODE_LEASE_S = 12
"""Kubelets renew their Lease every quarter of this: six heartbeats within the grace period."""

_CLIENT_RATE = ["--kube-api-qps=300", "--kube-api-burst=500"]
"""500 hollow pods are Ready in 5 s with these, in 26 s with the defaults (20/30)."""

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
ADMISSION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "PodSecurity",
            "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1",
                "kind": "PodSecurityConfiguration",
                "defaults": {"enforce": "restricted", "enforce-version": "latest"},
                "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": []},
            },
        }
    ],
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the control plane runs and what its clients see of it."""

    enter: tuple[str, ...]
    """Words before each command: nothing, or those that enter a network namespace."""
    bind: str
    """Address that the API server listens on."""
    advertise: str
    """Address behind the Service `kubernetes`; pods reach the API server there."""
    publish: bool
    """Whether that Service gets the address: there are pods that could use it."""
    port: int
    etcd_port: int
    etcd_peer_port: int
    services: str
    """CIDR of Service addresses."""
    hosts: tuple[str, ...]
    """Names and addresses in the API server's certificate."""

    @property
    def server(self) -> str:
        return f"https://{self.bind}:{self.port}"


@dataclass(frozen=True)
class Credentials:
    """The kubeconfig of each party below `folder`."""

    authority: Authority
    folder: Path
    server: str

    def kubeconfig(self, user: str, *groups: str) -> Path:
        """A kubeconfig of `user` in `groups`, issued at the first call."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        if not path.exists():
            pair = self.authority.issue(user.replace(":", "-"), user, groups=groups)
            self.authority.kubeconfig(path, self.server, pair)
        return path


def commands(
    place: Place,
    folder: Path,
    binaries: Binaries,
    credentials: Credentials,
    *,
    feature_gates: Mapping[str, bool],
    runtime_config: Sequence[str],
) -> dict[str, list[str]]:
    """Write what the processes read into `folder`; return their command lines, in the order to start them."""
    gates = [f"--feature-gates={','.join(f'{k}={str(v).lower()}' for k, v in feature_gates.items())}"]
    gates = gates if feature_gates else []
    manager = credentials.kubeconfig("system:kube-controller-manager")
    scheduler = credentials.kubeconfig("system:kube-scheduler")
    accounts = service_account_keys(credentials.folder)
    listeners = {
        "etcd": _etcd(place, folder),
        "kube-apiserver": [
            *_api_server(place, folder, credentials),
            f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            *([f"--runtime-config={','.join(runtime_config)}"] if runtime_config else []),
            *gates,
        ],
        "kube-controller-manager": [
            f"--kubeconfig={manager}",
            f"--service-account-private-key-file={accounts.key}",
            f"--root-ca-file={credentials.authority.certificate}",
            "--use-service-account-credentials=true",
            f"--node-monitor-grace-period={NODE_GRACE_S}s",
            "--node-monitor-period=2s",
            "--leader-elect=false",
            "--secure-port=0",
            *_CLIENT_RATE,
            *gates,
        ],
        "kube-scheduler": [
            f"--kubeconfig={scheduler}",
            "--leader-elect=false",
            "--secure-port=0",
            *_CLIENT_RATE,
            *gates,
        ],
    }
    return {name: [*place.enter, binaries[name], *flags] for name, flags in listeners.items()}


def _etcd(place: Place, folder: Path) -> list[str]:
    clients, peers = f"http://127.0.0.1:{place.etcd_port}", f"http://127.0.0.1:{place.etcd_peer_port}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(place: Place, folder: Path, credentials: Credentials) -> list[str]:
    authority = credentials.authority
    serving = authority.issue("kube-apiserver", "kube-apiserver", hosts=place.hosts)
    kubelet_client = authority.issue(
        "kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", groups=["system:masters"]
    )
    return [
        f"--etcd-servers=http://127.0.0.1:{place.etcd_port}",
        f"--bind-address={place.bind}",
        f"--advertise-address={place.advertise}",
        f"--endpoint-reconciler-type={'lease' if place.publish else 'none'}",
        f"--secure-port={place.port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={authority.certificate}",
        f"--kubelet-certificate-authority={authority.certificate}",
        f"--kubelet-client-certificate={kubelet_client.certificate}",
        f"--kubelet-client-key={kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={ISSUER}",
        f"--service-cluster-ip-range={place.services}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",  # Pod Security is what refuses privileged pods, with its own words
        f"--admission-control-config-file={_write(folder / 'admission.yaml', ADMISSION)}",
        f"--audit-policy-file={_write(folder / 'audit-policy.yaml', AUDIT_POLICY)}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-maxsize=0",
        "--max-requests-inflight=800",
        "--max-mutating-requests-inflight=400",
        "--profiling=false",
    ]


def _write(path: Path, document: Any) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
