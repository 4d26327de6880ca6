"""Where a rack's control plane runs: on 127.0.0.1, or in the router's network namespace."""

from __future__ import annotations

from tests.rack.addresses import Addresses
from tests.rack.controlplane import Place

API_SERVER_PORT = 6443
SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


def place_of(addresses: Addresses, real_nodes: bool) -> Place:
    service = str(addresses.services.network_address + 1)
    hosts = ("127.0.0.1", str(addresses.router), service, "localhost", *SERVICE_NAMES)
    if real_nodes:
        return Place(
            enter=("nsenter", f"--net=/run/netns/{addresses.name}"),
            bind=str(addresses.router),
            advertise=str(addresses.router),
            publish=True,
            port=API_SERVER_PORT,
            etcd_port=2379,
            etcd_peer_port=2380,
            services=str(addresses.services),
            hosts=hosts,
        )
    return Place(
        enter=(),
        bind="127.0.0.1",
        advertise=str(addresses.router),
        publish=False,
        port=addresses.port(0),
        etcd_port=addresses.port(1),
        etcd_peer_port=addresses.port(2),
        services=str(addresses.services),
        hosts=hosts,
    )
