"""A real node: containerd, kubelet and kube-proxy in namespaces and a control group of their own.

    /tmp/afd-rack-3/nodes/d0-n00/
        containerd/  kubelet/  cni/  ipam/  *.yaml  containerd.sock

Process 1 of the node (`node_init`) is recorded like every process of the rack. Killing it ends the node.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rack import cgroups, clients, containerd, network, node_init, service
from tests.rack.addresses import Addresses
from tests.rack.binaries import Binaries
from tests.rack.controlplane import NODE_LEASE_S, Credentials
from tests.rack.processes import Process, Processes
from tests.rack.spec import Node

STARTS_WITHIN_S = 30.0


@dataclass(frozen=True)
class RealNode:
    """One real node of one rack: where it lives and what it is started with."""

    node: Node
    addresses: Addresses
    rack_folder: Path
    binaries: Binaries
    credentials: Credentials
    processes: Processes
    feature_gates: dict[str, bool]

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def folder(self) -> Path:
        return self.rack_folder / "nodes" / self.name

    @property
    def index(self) -> int:
        assert self.node.index is not None, "only real nodes are made into RealNode"
        return self.node.index

    @property
    def namespace(self) -> str:
        return network.namespace_of(self.addresses, self.node)

    @property
    def cgroup(self) -> str:
        return f"{self.addresses.name}-{self.name}"

    @property
    def init(self) -> Process:
        return self.processes.named(f"{self.name}.init")

    def install(self, root: Path) -> None:
        """The node's disk: a containerd root with images, its CNI configuration; and its control group."""
        self.folder.mkdir(parents=True)
        containerd.copy_root(root, self.folder / "containerd")
        self._write_cni()
        cgroups.create(self.cgroup)

    def power_on(self) -> None:
        """The node without its kubelet: needs no API server, so it starts while the control plane does."""
        (self.folder / node_init.READY).unlink(missing_ok=True)
        self._start_init()
        config = containerd.write_config(self.folder, self.folder / "containerd")
        self._start("containerd", "env", f"TMPDIR={self.folder}", "containerd", "-c", str(config))
        clients.wait(
            f"containerd of {self.name} answers", lambda: containerd.answers(self.folder), STARTS_WITHIN_S,
            seen=self.processes.named(f"{self.name}.containerd").log_tail,
        )  # fmt: skip

    def power_off(self) -> None:
        """The mirror image of `power_on`: everything of the node is gone at once, its disk stays."""
        for part in ("init", "containerd", "kubelet", "kube-proxy"):
            self.processes.end(f"{self.name}.{part}")
        shutil.rmtree(self.folder / "state")

    def start_kubelet(self) -> None:
        """The mirror image of `stop_kubelet`."""
        config = self._write_kubelet_config()
        user = self.credentials.kubeconfig(f"system:node:{self.name}", "system:nodes")
        self._start(
            "kubelet", sys.executable, "-S", "-E", service.__file__,
            self.binaries["kubelet"], f"--config={config}", f"--kubeconfig={user}",
            f"--root-dir={self.folder / 'kubelet'}", f"--hostname-override={self.name}",
            f"--node-ip={self.addresses.node(self.index)}",
        )  # fmt: skip

    def stop_kubelet(self) -> None:
        """SIGKILL: its containers run on, the API server hears nothing any more."""
        self.processes.end(f"{self.name}.kubelet")

    def kill_kubelet(self) -> None:
        """SIGKILL to the kubelet alone: the node's service manager starts it again."""
        supervisor = self.processes.named(f"{self.name}.kubelet").pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)

    def container_pid(self, container_id: str) -> int:
        """Process 1 of a container, by its pid on the host. Raises KeyError if it does not run."""
        for group in cgroups.below(self.cgroup, container_id):
            for pid in (group / "cgroup.procs").read_text().split():
                status = Path(f"/proc/{pid}/status").read_text()
                if re.search(r"^NSpid:.*\b1$", status, re.MULTILINE):
                    return int(pid)
        raise KeyError(f"container {container_id} does not run on {self.name}")

    def start_proxy(self) -> None:
        self._start(
            "kube-proxy",
            *proxy_command(self.folder, self.binaries, self.credentials, self.addresses, self.name),
        )

    def _start(self, part: str, *command: str) -> None:
        enter = ("nsenter", f"--target={self.init.pid}", "--mount", "--pid", "--net")
        self.processes.start(f"{self.name}.{part}", [*enter, *command], forks=True)

    def _start_init(self) -> None:
        unshare = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc")
        init = [sys.executable, "-S", "-E", node_init.__file__, str(self.folder)]
        command = [*network.enter(self.namespace), *unshare, *init]
        process = self.processes.start(f"{self.name}.init", command, forks=True)
        clients.wait(
            f"node {self.name} has its file systems", (self.folder / node_init.READY).exists, STARTS_WITHIN_S,
            seen=process.log_tail,
        )  # fmt: skip

    def _write_cni(self) -> None:
        pods = self.addresses.pods(self.index)
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.folder / "ipam"),
                "ranges": [[{"subnet": str(pods)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        config = {"cniVersion": "0.4.0", "name": "rack", "plugins": [bridge]}
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(config))

    def _write_kubelet_config(self) -> Path:
        address = str(self.addresses.node(self.index))
        serving = self.credentials.authority.issue(
            f"{self.name}.serving",
            f"system:node:{self.name}",
            groups=["system:nodes"],
            hosts=[address, self.name],
        )
        config: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "healthzBindAddress": "127.0.0.1",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.credentials.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "containerRuntimeEndpoint": f"unix://{containerd.socket_of(self.folder)}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "clusterDomain": "cluster.local",
            "clusterDNS": [str(self.addresses.dns)],
            "resolvConf": "",
            "podLogsDir": str(self.folder / "pod-logs"),
            "nodeLeaseDurationSeconds": NODE_LEASE_S,
            "syncFrequency": "10s",
            # The disk is the user's own and may be nearly full: its state is not the rack's business.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "featureGates": self.feature_gates,
        }
        path = self.folder / "kubelet.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path


def proxy_command(
    folder: Path, binaries: Binaries, credentials: Credentials, addresses: Addresses, node: str
) -> list[str]:
    """kube-proxy in nftables mode: on every real node, and in the router for the host and the API server."""
    config: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "bindAddress": "0.0.0.0",
        "clusterCIDR": str(addresses.whole),
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": str(credentials.kubeconfig("system:kube-proxy"))},
        # 0: leave the host's conntrack table as it is
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    path = folder / "kube-proxy.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return [binaries["kube-proxy"], f"--config={path}"]
