"""Which domain a unit gets, and what it is told when it gets none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afd_operator.api.placement import NodeSelector, Requirement, SelectorOperator
from afd_operator.placement.choice import Chosen, Full, Impossible, choose, has_room
from afd_operator.placement.domains import Cluster, Request, views
from afd_operator.placement.facts import Node, Occupant, UnitId
from afd_operator.placement.reservation import Holder, Reservation, lease_name
from afd_operator.placement.scheduling import Taint, Toleration
from afd_unit import labels

US = UnitId("uid-us", 0)
THEM = Holder("prod", "them", UnitId("uid-them", 0))
GPU_TAINT = Taint("nvidia.com/gpu", "NoSchedule", "present")
CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


def node(domain: str, number: int, **facts: object) -> Node:
    base = Node(
        name=f"{domain}-{number:02d}", labels={labels.CLIQUE: domain}, ready=True, schedulable=True, gpus=4
    )
    return replace(base, **facts)  # type: ignore[arg-type]


def rack(**domains: int) -> Cluster:
    """`rack(a=18, b=4)`: domains of so many healthy nodes of 4 GPUs, nothing on them."""
    nodes = tuple(node(name, i) for name, size in domains.items() for i in range(size))
    return Cluster(nodes=nodes, occupants=(), reservations=())


def occupied(cluster: Cluster, *names: str, gpus: int = 4, unit: UnitId | None = None) -> Cluster:
    more = tuple(Occupant(name, gpus, unit) for name in names)
    return replace(cluster, occupants=cluster.occupants + more)


def held(cluster: Cluster, domain: str, holder: Holder = THEM, key: str = labels.CLIQUE) -> Cluster:
    record = Reservation(key, domain, holder, lease_name(key, domain), "lease-uid")
    return replace(cluster, reservations=(*cluster.reservations, record))


def changed(cluster: Cluster, name: str, **facts: object) -> Cluster:
    nodes = tuple(replace(n, **facts) if n.name == name else n for n in cluster.nodes)  # type: ignore[arg-type]
    return replace(cluster, nodes=nodes)


def wants(attention: int = 1, expert: int = 1, **more: object) -> Request:
    base = Request(unit=US, topology_key=labels.CLIQUE, attention=attention, expert=expert, gpus_per_node=4)
    return replace(base, **more)  # type: ignore[arg-type]


NOT_A = NodeSelector(
    match_expressions=[Requirement(key=labels.CLIQUE, operator=SelectorOperator.NOT_IN, values=["a"])]
)

CHOSEN = [
    ("the only one", rack(a=2), wants(), "a"),
    ("best fit: the fewest nodes stay behind", rack(a=18, b=2, c=4), wants(), "b"),
    ("equal fits go by name", rack(b=4, a=4), wants(), "a"),
    ("fit counts free nodes, not size", occupied(rack(a=4, b=3), "a-00", "a-01"), wants(), "a"),
    ("one GPU in use makes a node unfit", occupied(rack(a=2, b=9), "a-00", gpus=1), wants(), "b"),
    ("pods that ask for no GPU do not count", occupied(rack(a=2, b=9), "a-00", gpus=0), wants(), "a"),
    ("our own pods do not stand in our way", occupied(rack(a=2), "a-00", unit=US), wants(), "a"),
    ("another unit's pods do", occupied(rack(a=2, b=2), "a-00", unit=THEM.id), wants(), "b"),
    ("a reservation of another unit excludes", held(rack(a=2, b=9), "a"), wants(), "b"),
    ("our own does not", held(rack(a=2, b=9), "a", Holder("x", "us", US)), wants(), "a"),
    ("one of another topology key does not", held(rack(a=2, b=9), "a", key="rack"), wants(), "a"),
    ("spares count", rack(a=2, b=3), wants(spares=1), "b"),
    ("a node that is not Ready does not count", changed(rack(a=2, b=3), "a-00", ready=False), wants(), "b"),
    (
        "nor a cordoned one",
        changed(rack(a=2, b=3), "a-00", schedulable=False, taints=(CORDON,)),
        wants(tolerations=(Toleration(operator="Exists"),)),
        "b",
    ),
    ("nor one with a sick GPU", changed(rack(a=2, b=3), "a-00", gpus=3), wants(), "b"),
    ("it does for three GPUs", changed(rack(a=2, b=3), "a-00", gpus=3), wants(gpus_per_node=3), "a"),
    ("a taint keeps away", changed(rack(a=2, b=3), "a-00", taints=(GPU_TAINT,)), wants(), "b"),
    (
        "unless tolerated",
        changed(rack(a=2, b=3), "a-00", taints=(GPU_TAINT,)),
        wants(tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),)),
        "a",
    ),
    (
        "or only preferred",
        changed(rack(a=2, b=3), "a-00", taints=(Taint("noisy", "PreferNoSchedule"),)),
        wants(),
        "a",
    ),
    (
        "the domain selector admits",
        rack(a=2, b=2),
        wants(domain_selector=NOT_A),
        "b",
    ),
    (
        "the pods' node selector admits",
        changed(changed(rack(a=2, b=2), "b-00", labels={labels.CLIQUE: "b", "pool": "x"}),
                "b-01", labels={labels.CLIQUE: "b", "pool": "x"}),
        wants(node_selector={"pool": "x"}),
        "b",
    ),
    ("a node without the label is in no domain", changed(rack(a=2, b=3), "a-00", labels={}), wants(), "b"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "request_", "domain"), [c[1:] for c in CHOSEN], ids=[c[0] for c in CHOSEN]
)
def test_chosen(cluster: Cluster, request_: Request, domain: str) -> None:
    assert choose(cluster, request_) == Chosen(domain), views(cluster, request_)


def test_where_it_runs_is_preferred_to_a_better_fit() -> None:
    assert choose(rack(a=18, b=2), wants(), prefer="a") == Chosen("a")
    assert choose(held(rack(a=18, b=2), "a"), wants(), prefer="a") == Chosen("b")


REFUSED = [
    (
        "no domain is large enough",
        rack(a=18, b=4),
        wants(19, 1),
        Impossible,
        "needs 20 nodes (19 attention + 1 expert) with 4 GPUs each in one domain of nvidia.com/gpu.clique,"
        " no domain can offer them: a has 18 nodes; b has 4 nodes",
    ),
    (
        "large enough without the spare",
        rack(a=2),
        wants(spares=1),
        Impossible,
        "needs 3 nodes (1 attention + 1 expert + 1 spare) with 4 GPUs each in one domain of"
        " nvidia.com/gpu.clique, no domain can offer them: a has 2 nodes",
    ),
    (
        "no node has the label",
        rack(),
        wants(),
        Impossible,
        "needs 2 nodes (1 attention + 1 expert) with 4 GPUs each in one domain of nvidia.com/gpu.clique,"
        " but no node that the selectors admit carries that label",
    ),
    (
        "a taint that stays, on all nodes",
        changed(changed(rack(a=2), "a-00", taints=(GPU_TAINT,)), "a-01", taints=(GPU_TAINT,)),
        wants(),
        Impossible,
        "needs 2 nodes (1 attention + 1 expert) with 4 GPUs each in one domain of nvidia.com/gpu.clique,"
        " no domain can offer them: a has 2 nodes, 0 usable by these pods",
    ),
    (
        "all that fit are held",
        held(rack(a=2, b=1), "a"),
        wants(),
        Full,
        "waits for 2 nodes (1 attention + 1 expert) with 4 GPUs each in one domain of nvidia.com/gpu.clique:"
        " b has 1 node; a is held by prod/them/0",
    ),
    (
        "nodes are in use or down, which passes",
        changed(occupied(rack(a=3), "a-00"), "a-01", ready=False),
        wants(),
        Full,
        "waits for 2 nodes (1 attention + 1 expert) with 4 GPUs each in one domain of nvidia.com/gpu.clique:"
        " a has 1 of 3 nodes free",
    ),
    (
        "a cordoned domain is not an impossible one",
        changed(rack(a=2), "a-00", schedulable=False, taints=(CORDON,)),
        wants(),
        Full,
        "waits for 2 nodes (1 attention + 1 expert) with 4 GPUs each in one domain of nvidia.com/gpu.clique:"
        " a has 1 of 2 nodes free",
    ),
]


@pytest.mark.parametrize(
    ("cluster", "request_", "kind", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused(cluster: Cluster, request_: Request, kind: type[Full | Impossible], message: str) -> None:
    choice = choose(cluster, request_)
    assert isinstance(choice, kind)
    assert choice.message == message


def test_a_message_names_a_few_domains_and_counts_the_rest() -> None:
    choice = choose(rack(**{f"d{i:03d}": 1 for i in range(400)}), wants())
    assert isinstance(choice, Impossible)
    assert choice.message.endswith("; and 395 more")


def test_room_asks_for_no_spares_and_counts_what_the_unit_holds() -> None:
    cluster = occupied(rack(a=3), "a-00", "a-01", unit=US)
    assert has_room(cluster, wants(spares=2), "a")
    assert not has_room(cluster, wants(3, 1), "a")
    assert not has_room(cluster, wants(), "gone")


domain_names = st.sampled_from(["a", "b", "c"])
worlds = st.builds(
    lambda nodes, used, holders: Cluster(
        nodes=tuple(
            node(d, i, ready=ready, schedulable=up, gpus=gpus) for i, (d, ready, up, gpus) in enumerate(nodes)
        ),
        occupants=tuple(
            Occupant(f"{nodes[i % len(nodes)][0]}-{i % len(nodes):02d}", gpus, unit) for i, gpus, unit in used
        )
        if nodes
        else (),
        reservations=tuple(
            Reservation(labels.CLIQUE, d, THEM, lease_name(labels.CLIQUE, d), "u") for d in holders
        ),
    ),
    st.lists(st.tuples(domain_names, st.booleans(), st.booleans(), st.integers(3, 4)), max_size=24),
    st.lists(
        st.tuples(st.integers(0, 23), st.integers(1, 4), st.sampled_from([None, US, THEM.id])), max_size=8
    ),
    st.sets(domain_names),
)


@given(
    worlds,
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.one_of(st.none(), domain_names),
    st.randoms(),
)
def test_a_chosen_domain_has_room_is_free_and_does_not_depend_on_order(
    cluster: Cluster, attention: int, expert: int, spares: int, prefer: str | None, random: object
) -> None:
    request = wants(attention, expert, spares=spares)
    choice = choose(cluster, request, prefer=prefer)

    # Counted anew, node by node, without the code under test.
    def free(domain: str) -> int:
        return sum(
            n.ready
            and n.schedulable
            and n.gpus - sum(o.gpus for o in cluster.occupants if o.node == n.name and o.unit != US) >= 4
            for n in cluster.nodes
            if n.labels[labels.CLIQUE] == domain
        )

    taken = {r.domain for r in cluster.reservations}
    fitting = {d for d in "abc" if d not in taken and free(d) >= request.needed}
    if isinstance(choice, Chosen):
        assert choice.domain in fitting
        assert choice.domain == prefer or prefer not in fitting
    else:
        assert not fitting
        assert choice.message

    shuffled = list(cluster.nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = choose(replace(cluster, nodes=tuple(shuffled)), request, prefer=prefer)
    assert again == choice
