"""Which addresses and ports belong to which rack, so that several live beside one another.

A rack of real nodes takes a sixteenth of 198.18.0.0/15, the range set aside for benchmarks (RFC 2544):
no network that a machine can reach uses it. Of that /19:

    +0.0      /24   nodes: .1 the control plane's router, .10 + i real node i
    +1.0      /30   the link between router and host
    +2.0 ...  /25   pods of real node i
    +16.0     /20   Services

A rack without real nodes is a few processes on 127.0.0.1. Hollow pods get addresses of 100.64.0.0/10
(RFC 6598), which nothing routes: nothing answers there.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

RACKS = 16
"""Most racks of one machine at a time."""
HOLLOW_PODS = "100.64.0.0/10"
HOLLOW_NODE = "100.127.255.254"
"""InternalIP that hollow nodes report: no kubelet answers there."""

_ALL = IPv4Network("198.18.0.0/15")
_PORTS = range(25000, 25000 + RACKS * 10)
"""Below the range from which Linux picks ports for outgoing connections (32768)."""
MAX_REAL_NODES = 28
"""/25 pod ranges between +2.0 and +16.0."""


@dataclass(frozen=True)
class Addresses:
    """Everything that is derived from a rack's number."""

    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < RACKS:
            raise ValueError(f"rack number {self.number}, must be below {RACKS}")

    @property
    def name(self) -> str:
        """Prefix of network namespaces, links, nft tables and cgroups. Link names hold 15 characters."""
        return f"afd{self.number}"

    @property
    def whole(self) -> IPv4Network:
        return list(_ALL.subnets(new_prefix=19))[self.number]

    def _at(self, third_octet: int, last_octet: int = 0) -> IPv4Address:
        return self.whole.network_address + third_octet * 256 + last_octet

    @property
    def nodes(self) -> IPv4Network:
        return IPv4Network((self._at(0), 24))

    @property
    def router(self) -> IPv4Address:
        return self._at(0, 1)

    def node(self, index: int) -> IPv4Address:
        if not 0 <= index < MAX_REAL_NODES:
            raise ValueError(f"real node {index}, a rack has room for {MAX_REAL_NODES}")
        return self._at(0, 10 + index)

    def pods(self, index: int) -> IPv4Network:
        self.node(index)
        return IPv4Network((self._at(2) + index * 128, 25))

    @property
    def host_link(self) -> tuple[IPv4Address, IPv4Address]:
        """(host side, router side) of the /30 between them."""
        return self._at(1, 1), self._at(1, 2)

    @property
    def services(self) -> IPv4Network:
        return IPv4Network((self._at(16), 20))

    @property
    def dns(self) -> IPv4Address:
        return self.services.network_address + 10

    def port(self, offset: int) -> int:
        """A port of the rack on 127.0.0.1."""
        return _PORTS[self.number * 10 + offset]

    @property
    def ports(self) -> range:
        return _PORTS[self.number * 10 : self.number * 10 + 10]
