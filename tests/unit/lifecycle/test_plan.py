"""A unit's life, told in scenes: each starts from a world and says what it comes to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lifecycle.world import World, rack

from afd_operator.api.status import UnitStage
from afd_operator.lifecycle.actions import Apply, CreatePod, Delete, DeletePod, LiftGate, Reserve
from afd_operator.placement.facts import UnitId
from afd_operator.placement.reservation import Holder, to_lease
from afd_unit import labels


def world(nodes: list[dict[str, Any]] | None = None, **spec: Any) -> World:
    """A rack of two domains with one deployment `demo` that runs."""
    found = World(nodes or rack(a=2, b=2))
    found.create("demo", **spec)
    found.settle()
    return found


# ---- coming up ----


def test_a_unit_comes_up_in_four_looks() -> None:
    found = World(rack(a=2))
    found.create("demo")

    found.reconcile("demo")
    assert found.stages("demo") == [UnitStage.RESERVED]
    kinds = [type(write) for write in found.writes[:-1]]
    assert kinds == [Reserve, Apply, Apply, Apply, Apply, CreatePod, CreatePod, CreatePod]
    found.schedule()
    assert not any(pod["spec"].get("nodeName") for pod in found.units_pods()), "a gated pod was bound"

    found.reconcile("demo")
    assert found.stages("demo") == [UnitStage.GATED]
    assert [type(w) for w in found.writes[-4:-1]] == [LiftGate, LiftGate, LiftGate]

    found.schedule()
    found.run()
    assert all(pod["status"]["phase"] == "Pending" for pod in found.units_pods()), "started without ConfigMap"
    found.reconcile("demo")
    assert found.stages("demo") == [UnitStage.STARTED]
    assert ("ConfigMap", "demo-0") in found.children
    assert ("Deployment", "demo-gateway") in found.children

    found.run()
    found.gateways()
    found.reconcile("demo")
    assert found.stages("demo") == [UnitStage.READY]
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_at_rest_nothing_is_written() -> None:
    found = world()
    found.writes.clear()
    found.reconcile("demo")
    assert found.writes == []


def test_all_pods_of_a_unit_are_in_one_domain() -> None:
    found = world(rack(a=3, b=3), ratio={"attention": 2, "expert": 1})
    nodes = {pod["spec"]["nodeName"][0] for pod in found.units_pods()}
    assert len(nodes) == 1
    assert len(found.units_pods()) == 4


def test_a_second_deployment_gets_another_domain_a_third_waits_and_moves_in_when_one_goes() -> None:
    found = world()
    found.create("second")
    found.create("third")
    found.settle()
    assert found.domains() == {"a": "prod/demo/0", "b": "prod/second/0"}
    assert found.condition("third", "Ready") == ("False", "WaitingForDomain")
    assert found.condition("third", "Reconciling") == ("True", "WaitingForDomain")
    assert "a is held by prod/demo/0; b is held by prod/second/0" in found.message("third", "DomainSelected")
    assert not [pod for pod in found.pods if pod.startswith("third")]

    found.delete("demo")
    found.settle()
    assert found.domains() == {"a": "prod/third/0", "b": "prod/second/0"}
    assert found.condition("third", "Ready") == ("True", "UnitsServe")


def test_the_domain_of_a_deleted_deployment_is_held_until_its_last_pod_is_gone() -> None:
    found = World(rack(a=2))
    found.create("demo")
    found.settle()
    found.delete("demo")
    found.create("next")
    found.collect()
    found.silence("a-0")
    found.run()
    found.reconcile("demo")
    found.reconcile("next")
    assert found.domains() == {"a": "prod/demo/0"}
    found.silence("a-0", ready=True)
    found.settle()
    assert found.domains() == {"a": "prod/next/0"}


def test_a_namesake_waits_for_the_pods_of_the_one_before() -> None:
    found = world(rack(a=2, b=2))
    found.delete("demo")
    found.collect()
    found.create("demo")
    found.reconcile("demo")
    assert "of a deleted deployment of this name" in found.message("demo", "Ready")
    found.settle()
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")
    assert len(found.domains()) == 1


def test_a_node_that_is_taken_before_the_pods_are_bound_sends_the_unit_elsewhere() -> None:
    found = World(rack(a=2, b=3))
    found.create("demo")
    found.reconcile("demo")
    assert found.domains() == {"a": "prod/demo/0"}
    found.occupy("a-0")
    found.settle()
    assert found.domains() == {"b": "prod/demo/0"}
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_a_unit_that_lost_its_room_gives_the_domain_back_though_no_other_is_free() -> None:
    found = World(rack(a=2))
    found.create("demo")
    found.reconcile("demo")
    found.occupy("a-0")
    found.settle()
    assert found.domains() == {}
    assert found.units_pods() == []
    assert found.condition("demo", "Ready") == ("False", "WaitingForDomain")


def test_several_units_take_several_domains_in_one_look() -> None:
    found = World(rack(a=2, b=2))
    found.create("demo", units=2)
    found.reconcile("demo")
    assert found.domains() == {"a": "prod/demo/0", "b": "prod/demo/1"}
    found.settle()
    assert found.status("demo").ready == "2/2"


# ---- bad input ----

LOAD = {"inputTokens": 1, "outputTokens": 1, "requestsPerSecond": 1}
AUTO = {"ratio": {"mode": "Auto", "attention": None, "expert": None}, "workload": LOAD}

BAD = [
    ("too large a unit", {"ratio": {"attention": 18, "expert": 2}}, "NoDomainLargeEnough", "needs 20 nodes"),
    ("too many GPUs", {"placement": {"gpusPerNode": 8}}, "NoDomainLargeEnough", "with 8 GPUs each"),
    ("no such label", {"placement": {"topologyKey": "rack"}}, "NoDomainLargeEnough", "carries that label"),
    ("no such claim", {"model": {"source": "pvc://typo/x"}}, "ModelNotFound", "no such Persistent"),
    ("unknown source", {"model": {"source": "s3://bucket/x"}}, "SpecNotActedOn", "spec.model.source"),
    ("no planner yet", AUTO, "SpecNotActedOn", "spec.ratio.mode"),
    ("another runtime", {"runtime": {"backend": "sglang"}}, "SpecNotActedOn", "spec.runtime.backend"),
]


@pytest.mark.parametrize(("spec", "reason", "words"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_what_cannot_be_done_is_said_and_no_pod_runs(spec: dict[str, Any], reason: str, words: str) -> None:
    found = world(**spec)
    assert found.condition("demo", "Ready") == ("False", reason)
    assert found.condition("demo", "Stalled") == ("True", reason)
    assert found.condition("demo", "Reconciling") is None
    assert words in found.message("demo", "Stalled")
    assert (found.pods, found.children, found.leases) == ({}, {}, {})


def test_a_running_unit_outlives_a_change_to_what_cannot_be_done() -> None:
    found = world()
    found.change("demo", runtime={"backend": "sglang"})
    found.settle()
    assert found.condition("demo", "Stalled") == ("True", "SpecNotActedOn")
    assert found.stages("demo") == [UnitStage.READY]
    assert len(found.units_pods()) == 3


def test_fields_without_effect_are_named_and_do_not_stop_anything() -> None:
    found = world(slo={"ttft": "2s"}, placement={"fabric": "ComputeDomain"})
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")
    assert found.condition("demo", "SpecActedOn") == ("False", "FieldsWithoutEffect")
    assert "spec.slo" in found.message("demo", "SpecActedOn")
    assert "spec.placement.fabric" in found.message("demo", "SpecActedOn")


# ---- what is lost is replaced ----


def test_a_failed_pod_is_replaced_in_the_same_domain_and_the_others_stay() -> None:
    found = world(rack(a=4, b=3), ratio={"attention": 2, "expert": 1})
    uids = {name: pod["metadata"]["uid"] for name, pod in found.pods.items()}
    (domain,) = found.domains()
    found.fail("demo-0-exp-0")
    found.settle()
    changed = {name for name, pod in found.pods.items() if pod["metadata"]["uid"] != uids[name]}
    assert changed == {"demo-0-exp-0"}
    assert list(found.domains()) == [domain]
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_a_replaced_pod_of_a_running_unit_does_not_wait_for_the_others() -> None:
    found = world()
    del found.pods["demo-0-attn-0"]
    found.silence("a-1")
    found.reconcile("demo")
    found.reconcile("demo")
    assert found.pods["demo-0-attn-0"]["spec"]["schedulingGates"] == []


def test_a_pod_that_fails_at_once_is_not_replaced_in_a_tight_loop() -> None:
    found = world()
    found.fail("demo-0-attn-0")
    found.pods["demo-0-attn-0"]["metadata"]["creationTimestamp"] = found.now.isoformat()
    found.writes.clear()
    found.reconcile("demo")
    assert not [write for write in found.writes if isinstance(write, DeletePod)]
    assert found.plan("demo").requeue_after_s == 10


def test_a_unit_short_of_an_expert_is_degraded_and_says_why() -> None:
    found = world(rack(a=2))
    found.lose("a-1")
    found.settle()
    assert found.condition("demo", "Degraded") == ("True", "UnitsBroken")
    assert found.condition("demo", "Ready") == ("False", "UnitsBroken")
    assert found.condition("demo", "RatioSatisfied") == ("False", "NodesMissing")
    assert "0 nodes are available" in found.message("demo", "Degraded")
    assert found.stages("demo") == [UnitStage.BROKEN]


def test_a_unit_short_of_an_expert_moves_to_a_domain_that_has_room() -> None:
    found = world(rack(a=2, b=3))
    assert found.domains() == {"a": "prod/demo/0"}
    found.lose(next(p["spec"]["nodeName"] for n, p in found.pods.items() if "exp" in n))
    found.settle()
    assert found.domains() == {"b": "prod/demo/0"}
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_a_unit_short_of_one_lane_goes_on_where_it_is() -> None:
    found = world(rack(a=3, b=4), ratio={"attention": 2, "expert": 1})
    assert found.domains() == {"a": "prod/demo/0"}
    found.lose(found.pods["demo-0-attn-0"]["spec"]["nodeName"])
    found.settle()
    assert found.domains() == {"a": "prod/demo/0"}
    assert found.condition("demo", "Degraded") == ("True", "UnitsBroken")
    assert "unit 0 has 1 of 2 attention, 1 of 1 expert nodes" in found.message("demo", "RatioSatisfied")


def test_a_unit_that_is_told_to_hold_does_not_move() -> None:
    found = world(rack(a=2, b=3), failurePolicy={"domain": "Hold"})
    found.lose(next(p["spec"]["nodeName"] for n, p in found.pods.items() if "exp" in n))
    found.settle()
    assert found.domains() == {"a": "prod/demo/0"}
    assert found.condition("demo", "Degraded") == ("True", "UnitsBroken")


def test_a_spare_replaces_a_lost_node() -> None:
    found = world(rack(a=2, b=3), placement={"spares": 1})
    assert found.domains() == {"b": "prod/demo/0"}
    found.lose(found.pods["demo-0-exp-0"]["spec"]["nodeName"])
    found.settle()
    assert found.domains() == {"b": "prod/demo/0"}
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_a_pod_that_cannot_go_is_told_of_with_its_node_and_the_cure() -> None:
    found = world(rack(a=3))
    node = found.pods["demo-0-exp-0"]["spec"]["nodeName"]
    found.silence(node)
    found._delete_pod("demo-0-exp-0")
    found.settle()
    message = found.message("demo", "Degraded")
    assert f"remove {node}" in message
    assert "out-of-service" in message


def test_a_unit_of_which_no_worker_is_left_starts_over_whole() -> None:
    found = world(rack(a=2))
    for name in ("demo-0-attn-0", "demo-0-exp-0"):
        del found.pods[name]
    found.occupy("a-0")
    found.settle()
    assert ("ConfigMap", "demo-0") not in found.children, "half a unit could start"
    assert found.units_pods() == []


def test_a_reservation_that_somebody_deleted_is_taken_again() -> None:
    found = world()
    before = found.domains()
    found.leases.clear()
    found.settle()
    assert found.domains() == before
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_a_unit_whose_deleted_reservation_went_to_another_makes_room() -> None:
    found = world(rack(a=2, b=2))
    (domain,) = found.domains()
    found.leases.clear()
    taken = to_lease(labels.CLIQUE, domain, Holder("prod", "thief", UnitId("uid-thief", 0)), "afd-system")
    taken["metadata"]["uid"] = "thief"
    found.leases[taken["metadata"]["name"]] = taken
    actions = found.plan("demo").actions
    assert [type(action) for action in actions] == [Delete, DeletePod, DeletePod, DeletePod]
    assert (
        f"domain {domain} is held by prod/thief/0"
        in found.plan("demo").status.dump()["unitStatuses"][0]["message"]
    )


def test_a_child_that_somebody_changed_or_deleted_is_put_right() -> None:
    found = world()
    found.children["Service", "demo"]["spec"]["ports"][0]["port"] = 81
    del found.children["Service", "demo-0-coord"]
    found.settle()
    assert found.children["Service", "demo"]["spec"]["ports"][0]["port"] == 80
    assert ("Service", "demo-0-coord") in found.children


# ---- scaling ----


def test_scaling_up_leaves_the_first_unit_alone_and_down_takes_the_highest() -> None:
    found = world(rack(a=2, b=2, c=2))
    first = found.pods["demo-0-attn-0"]["metadata"]["uid"]
    found.change("demo", units=3)
    found.settle()
    assert found.status("demo").ready == "3/3"
    found.change("demo", units=1)
    found.settle()
    assert found.domains() == {"a": "prod/demo/0"}
    assert found.pods["demo-0-attn-0"]["metadata"]["uid"] == first
    assert found.status("demo").units == 1
    assert ("Service", "demo-1-coord") not in found.children


def test_scaling_to_zero_gives_every_domain_back_and_is_ready() -> None:
    found = world()
    found.change("demo", units=0)
    found.settle()
    assert found.domains() == {}
    assert found.units_pods() == []
    assert found.condition("demo", "Ready") == ("True", "ScaledToZero")


def test_scaling_past_the_cluster_keeps_what_runs() -> None:
    found = world()
    found.change("demo", units=3)
    found.settle()
    assert found.status("demo").ready == "2/3"
    assert found.condition("demo", "Ready") == ("False", "WaitingForDomain")
    assert found.stages("demo") == [UnitStage.READY, UnitStage.READY, UnitStage.PENDING]


# ---- new revisions ----


def image(found: World) -> set[str]:
    return {c["image"] for pod in found.units_pods() for c in pod["spec"]["containers"]}


NEW = {"runtime": {"image": "registry.example/afd:2"}}


def test_a_new_image_replaces_the_unit_as_a_whole_on_its_own_domain() -> None:
    found = world(rack(a=3, b=2), placement={"spares": 1})
    found.change("demo", **NEW, placement={"spares": 1})
    found.settle()
    assert image(found) == {"registry.example/afd:2"}
    assert found.domains() == {"a": "prod/demo/0"}
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")


def test_units_are_replaced_one_at_a_time() -> None:
    found = world(units=2)
    found.change("demo", **NEW, units=2)
    found.reconcile("demo")
    assert found.stages("demo") == [UnitStage.STOPPING, UnitStage.READY]
    found.reconcile("demo")
    assert found.stages("demo")[1] is UnitStage.READY
    assert "until other units serve" in found.message("demo", "Ready")
    found.settle()
    assert image(found) == {"registry.example/afd:2"}


def test_a_new_ratio_that_fits_only_elsewhere_moves_the_unit() -> None:
    found = world(rack(a=2, b=3))
    found.change("demo", ratio={"attention": 2, "expert": 1})
    found.settle()
    assert found.domains() == {"b": "prod/demo/0"}


def test_a_new_ratio_that_fits_nowhere_leaves_the_unit_serving() -> None:
    found = world()
    found.change("demo", ratio={"attention": 2, "expert": 1})
    found.settle()
    assert found.condition("demo", "Stalled") == ("True", "NoDomainLargeEnough")
    assert found.stages("demo") == [UnitStage.READY]
    assert len(found.units_pods()) == 3


def test_with_on_delete_a_unit_keeps_its_revision_until_a_pod_of_it_is_deleted() -> None:
    found = world(update={"strategy": "OnDelete"})
    found.change("demo", **NEW, update={"strategy": "OnDelete"})
    found.settle()
    assert image(found) == {"registry.example/afd:1"}
    assert found.condition("demo", "Ready") == ("True", "UnitsServe")
    found._delete_pod("demo-0-attn-0")
    found.settle()
    assert image(found) == {"registry.example/afd:2"}


def test_a_change_during_a_change_ends_at_the_last_one() -> None:
    found = world()
    found.change("demo", **NEW)
    found.reconcile("demo")
    found.run()
    found.change("demo", runtime={"image": "registry.example/afd:3"})
    found.settle()
    assert image(found) == {"registry.example/afd:3"}


def test_conditions_keep_their_time_while_they_do_not_change() -> None:
    found = world()
    since = {c.type: c.last_transition_time for c in found.status("demo").conditions}
    found.change("demo", units=1, slo={"ttft": "1s"})
    found.settle()
    after = {c.type: c for c in found.status("demo").conditions}
    assert after["Ready"].last_transition_time == since["Ready"]
    assert after["Ready"].observed_generation == 2
    assert after["SpecActedOn"].last_transition_time != since["SpecActedOn"]


def test_the_domain_label_of_children_is_the_reserved_one() -> None:
    found = world()
    (domain,) = found.domains()
    notes = found.children["ConfigMap", "demo-0"]["metadata"]["annotations"]
    assert notes[labels.DOMAIN] == domain
