"""Bring a rack up, hold it, take it down whole.

    with rack(domains=2, nodes=18, gpus=4) as r:
        r.kubectl("get", "nodes")

Down means: every recorded process is killed, and with the process that is a real node's init go its
containers and mounts; then its network namespaces, link, nft table, control groups and folder. All of
that has names derived from the rack's number, so `down` needs nothing but the number and works after a
crash of whoever brought it up.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rack import binaries, cgroups, claim, clients, containerd, controlplane, dns, hollow, host, network
from tests.rack.claim import Claim
from tests.rack.handle import Rack
from tests.rack.images import Image, system
from tests.rack.node import RealNode, proxy_command
from tests.rack.processes import Processes
from tests.rack.spec import CPU_NODE, RackSpec

log = logging.getLogger("afd.rack")

API_SERVER_WITHIN_S = 60.0
NODES_WITHIN_S = 90.0


class RackError(RuntimeError):
    """The rack did not come up; the message holds the failing part's log."""


@contextmanager
def rack(
    *,
    domains: int = 1,
    nodes: int = 4,
    gpus: int = 4,
    real: int | Mapping[int, int] = 0,
    images: Sequence[Image] = (),
    **more: Any,
) -> Iterator[Rack]:
    """A rack for the length of the block. `more`: the other fields of RackSpec."""
    found = up(RackSpec(domains=domains, nodes=nodes, gpus=gpus, real=real, **more), images=images)
    try:
        yield found
    finally:
        found.close()
        down(found.claim)


def up(spec: RackSpec, *, images: Sequence[Image] = (), keep: bool = False) -> Rack:
    """Start a rack. `images`: those that its real nodes have from the start. `keep`: it outlives this
    process. Raises HostError or RackError, and then leaves nothing behind."""
    host.prepare(real_nodes=spec.has_real_nodes)
    commands = binaries.ensure()
    reap()
    claimed = claim.take()
    found = Rack(spec=spec, claim=claimed, binaries=commands)
    try:
        _start(found, images)
    except BaseException as error:
        report = found.describe() if isinstance(error, Exception) else ""
        found.close()
        down(claimed)
        raise RackError(f"the rack did not come up: {error}\n{report}") from error
    if keep:
        claimed.keep()
    return found


def down(claimed: Claim) -> None:
    """Remove everything that bears the rack's number. Safe to repeat."""
    Processes(claimed.folder / "processes").end_all()
    if os.geteuid() == 0:
        network.down(claimed.addresses)
        cgroups.remove(claimed.addresses.name)
    shutil.rmtree(claimed.folder)


def reap() -> None:
    """Remove stale racks: those whose owner died without taking them down."""
    for found in claim.claims():
        if found.stale:
            log.warning("removing rack %d: its owner is gone", found.number)
            down(found)


def _start(found: Rack, images: Sequence[Image]) -> None:
    """Everything that can start at once does: containerd needs no API server."""
    with ThreadPoolExecutor(len(found.real_nodes) + 1) as pool:
        if found.real_nodes:
            network.up(found.addresses, found.nodes)
            root = containerd.root_with([image.archive for image in (*system(found.binaries), *images)])
        powered = [pool.submit(_install, node, root) for node in found.real_nodes]
        _start_control_plane(found)
        _create_nodes(found)
        for node in powered:
            node.result()
    _start_kubelets(found)
    clients.wait(
        f"all {len(found.nodes)} nodes Ready", lambda: not _not_ready(found), NODES_WITHIN_S,
        seen=lambda: f"not Ready: {_not_ready(found)}",
    )  # fmt: skip
    for node in found.real_nodes:
        found.node(node.name).give_gpus()
    found.await_service_account("default")


def _install(node: RealNode, root: Path) -> None:
    node.install(root)
    node.power_on()


def _start_control_plane(found: Rack) -> None:
    for name, command in controlplane.commands(
        found.place,
        found.folder,
        found.binaries,
        found.credentials,
        feature_gates=found.spec.feature_gates,
        runtime_config=found.spec.runtime_config,
    ).items():
        if name == "kube-controller-manager":
            _await_api_server(found)
        found.processes.start(name, command)
    kwok = found.credentials.kubeconfig("kwok", "system:masters")
    found.processes.start("kwok", hollow.command(found.place.enter, found.binaries, kwok))


def _create_nodes(found: Rack) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda node: found.core.create_node(node.manifest()), found.nodes))


def _start_kubelets(found: Rack) -> None:
    for node in found.real_nodes:
        node.start_kubelet()
        node.start_proxy()
    if found.real_nodes:
        proxy = proxy_command(found.folder, found.binaries, found.credentials, found.addresses, CPU_NODE)
        found.processes.start("kube-proxy", [*found.place.enter, *proxy])
        found.apply(*dns.manifests(found.addresses))


def _await_api_server(found: Rack) -> None:
    credentials = found.credentials
    pair = credentials.authority.issue("rack-probe", "rack-probe", groups=["system:monitoring"])

    def ready() -> bool:
        if not found.processes.named("kube-apiserver").alive:
            raise RackError("the API server ended")
        ca = credentials.authority.certificate
        return clients.answers(found.place.server, ca, pair.certificate, pair.key)

    clients.wait("the API server is ready", ready, API_SERVER_WITHIN_S)


def _not_ready(found: Rack) -> list[str]:
    return [
        node.metadata.name
        for node in found.core.list_node().items
        if not any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or [])
    ]
