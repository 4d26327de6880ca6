"""The network of real nodes: a namespace each, a router between them, a guarded link to the host.

      host            router (netns afd3)               node (netns afd3-d0-n00)
    +------+  /30   +------------------------+        +---------------------------+
    | afd3 |--------| host   kube-proxy      |        |   kubelet  kube-proxy     |
    +------+        |        API server, ... |        |                cni0 -- pods|
       guard        | guard   nodes (bridge)-|--------|-eth0                       |
                    +------------------------+        +---------------------------+

The host has routes to pods and Services, so kubectl, curl and a browser work from the user's own shell.
Nothing goes the other way: the router has no default route, and nft guards at both ends of the link let
through only answers to what the host asked. The host forwards nothing to or from the link either.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.rack.addresses import Addresses
from tests.rack.shell import run, run_lines
from tests.rack.spec import Node


def up(addresses: Addresses, nodes: Sequence[Node]) -> None:
    """Make the namespaces, links, routes and guards for the real ones of `nodes`."""
    real = [node for node in nodes if node.real]
    name = addresses.name
    _host_side(addresses)
    _, router = addresses.host_link
    run_lines("ip", "-batch", "-", lines=[f"netns add {namespace_of(addresses, node)}" for node in real])
    run_lines(
        "ip", "-n", name, "-batch", "-",
        lines=[
            "link set lo up",
            f"address add {router}/30 dev host",
            "link set host up",
            "link add nodes type bridge",
            f"address add {addresses.router}/{addresses.nodes.prefixlen} dev nodes",
            "link set nodes up",
            # A process here that dials a Service needs a route before kube-proxy rewrites the address.
            f"route add {addresses.services} dev nodes",
            *(line for node in real for line in _router_port(addresses, node)),
        ],
    )  # fmt: skip
    for node in real:
        run_lines(
            "ip", "-n", namespace_of(addresses, node), "-batch", "-", lines=_node_side(addresses, node, real)
        )
        _forward(namespace_of(addresses, node))
    _forward(name)
    run_lines("nsenter", f"--net=/run/netns/{name}", "nft", "-f", "-", lines=[ROUTER_GUARD])


def down(addresses: Addresses) -> None:
    """Remove all of it, also what is left of a half-made one."""
    name = addresses.name
    run("nft", "delete", "table", "inet", name, check=False)
    run("ip", "link", "delete", name, check=False)
    for line in run("ip", "netns", "list").splitlines():
        namespace = line.split()[0]
        if namespace == name or namespace.startswith(f"{name}-"):
            run("ip", "netns", "delete", namespace)


def namespace_of(addresses: Addresses, node: Node) -> str:
    return f"{addresses.name}-{node.name}"


def enter(namespace: str) -> tuple[str, ...]:
    """Words that run a command in a network namespace. (`ip netns exec` would hide the control groups.)"""
    return "nsenter", f"--net=/run/netns/{namespace}"


def _host_side(addresses: Addresses) -> None:
    name = addresses.name
    host, router = addresses.host_link
    run("nft", "-f", "-", stdin=HOST_GUARD.format(link=name))
    run_lines(
        "ip", "-batch", "-",
        lines=[
            f"netns add {name}",
            f"link add {name} type veth peer name host netns {name}",
            f"address add {host}/30 dev {name}",
            f"link set {name} up",
            f"route add {addresses.whole} via {router} dev {name}",
        ],
    )  # fmt: skip


def _router_port(addresses: Addresses, node: Node) -> list[str]:
    assert node.index is not None
    port = f"node{node.index}"
    return [
        f"link add {port} type veth peer name eth0 netns {namespace_of(addresses, node)}",
        f"link set {port} master nodes",
        f"link set {port} up",
        f"route add {addresses.pods(node.index)} via {addresses.node(node.index)}",
    ]


def _node_side(addresses: Addresses, node: Node, real: Sequence[Node]) -> list[str]:
    assert node.index is not None
    peers = [other.index for other in real if other.index is not None and other is not node]
    return [
        "link set lo up",
        f"address add {addresses.node(node.index)}/{addresses.nodes.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {addresses.router}",
        *(f"route add {addresses.pods(peer)} via {addresses.node(peer)}" for peer in peers),
    ]


def _forward(namespace: str) -> None:
    for setting, value in SETTINGS.items():
        run(*enter(namespace), "tee", f"/proc/sys/net/{setting}", stdin=value)


SETTINGS = {
    "ipv4/ip_forward": "1",
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
}
HOST_GUARD = """
table inet {link} {{
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{link}" ct state established,related accept
    iifname "{link}" drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{link}" drop
    oifname "{link}" drop
  }}
}}
"""
ROUTER_GUARD = """
table inet guard {
  chain forward {
    type filter hook forward priority -10; policy accept;
    oifname "host" ct state established,related accept
    oifname "host" drop
  }
  chain output {
    type filter hook output priority -10; policy accept;
    oifname "host" ct state established,related accept
    oifname "host" drop
  }
}
"""
