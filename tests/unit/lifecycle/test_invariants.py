"""Any order of events, any crash between two writes, any refused write: the invariants of the lifecycle
hold after every write (`World.check`), and once things calm down everybody is served or told why not."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.lifecycle.world import World, rack

NAMES = st.sampled_from(["demo", "other", "third"])
SPECS = st.fixed_dictionaries(
    {
        "units": st.integers(0, 2),
        "ratio": st.sampled_from([{"attention": 1, "expert": 1}, {"attention": 2, "expert": 1}]),
        "runtime": st.sampled_from([{}, {"image": "registry.example/afd:2"}, {"backend": "sglang"}]),
        "placement": st.sampled_from([{}, {"spares": 1}]),
        "update": st.sampled_from([{}, {"strategy": "OnDelete"}]),
    }
)


class AnyOrder(RuleBasedStateMachine):
    """Users, operator, scheduler, kubelets and misfortune take turns as hypothesis pleases."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(rack(a=2, b=3, c=2))

    @rule(name=NAMES, spec=SPECS)
    def someone_applies(self, name: str, spec: dict[str, object]) -> None:
        if name in self.world.deployments:
            self.world.change(name, **spec)
        else:
            self.world.create(name, **spec)

    @precondition(lambda self: self.world.deployments)
    @rule(data=st.data())
    def someone_deletes(self, data: st.DataObject) -> None:
        self.world.delete(data.draw(st.sampled_from(sorted(self.world.deployments))))

    @initialize(specs=st.lists(SPECS, min_size=1, max_size=3))
    def some_deployments_run(self, specs: list[dict[str, object]]) -> None:
        for name, spec in zip(["demo", "other", "third"], specs, strict=False):
            self.world.create(name, **spec)
        self.world.settle()

    @rule(rounds=st.integers(1, 4))
    def everybody_works_for_a_while(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.everybody_works()

    @rule(data=st.data())
    def the_operator_works(self, data: st.DataObject) -> None:
        self.world.reconcile(self.some_name(data))

    @rule(data=st.data(), writes=st.integers(0, 12))
    def the_operator_is_killed_between_two_writes(self, data: st.DataObject, writes: int) -> None:
        self.world.reconcile(self.some_name(data), killed_after=writes)

    @rule(data=st.data(), write=st.integers(0, 12))
    def the_api_server_refuses_a_write(self, data: st.DataObject, write: int) -> None:
        self.world.reconcile(self.some_name(data), fails_at=write)

    def some_name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.world.names() or ["demo"]))

    @rule()
    def the_scheduler_works(self) -> None:
        self.world.schedule()

    @rule()
    def kubelets_work(self) -> None:
        self.world.run()
        self.world.gateways()

    @rule()
    def the_garbage_collector_works(self) -> None:
        self.world.collect()

    @rule(node=st.sampled_from(["a-0", "b-0", "b-1", "c-1"]), ready=st.booleans())
    def a_node_falls_silent_or_comes_back(self, node: str, ready: bool) -> None:
        self.world.silence(node, ready=ready)

    @rule(node=st.sampled_from(["a-1", "b-2", "c-0"]))
    def somebody_else_takes_or_leaves_a_node(self, node: str) -> None:
        if self.world.pods.pop(f"other-{node}", None) is None and not self.world._held().get(node):
            self.world.occupy(node)

    @precondition(lambda self: self.world.units_pods())
    @rule(data=st.data(), gone=st.booleans())
    def a_pod_is_evicted_or_deleted(self, data: st.DataObject, gone: bool) -> None:
        name = data.draw(st.sampled_from(sorted(p["metadata"]["name"] for p in self.world.units_pods())))
        if gone:
            self.world._delete_pod(name)
        else:
            self.world.fail(name)

    def teardown(self) -> None:
        """Calm: nodes answer, nobody changes anything."""
        world = self.world
        for node in world.nodes:
            world.silence(node, ready=True)
        world.settle()
        world.writes.clear()
        for name, found in world.deployments.items():
            world.reconcile(name)
            answer = world.condition(name, "Ready")
            assert answer in {
                ("True", "UnitsServe"),
                ("True", "ScaledToZero"),
                ("False", "WaitingForDomain"),
                ("False", "NoDomainLargeEnough"),
                ("False", "SpecNotActedOn"),
                # An OnDelete unit of an old revision cannot be repaired, only moved on by its user.
                ("False", "UnitsBroken"),
            }, (name, found["spec"], answer)
            if answer == ("False", "UnitsBroken"):
                assert found["spec"]["update"] == {"strategy": "OnDelete"} or self._occupied()
        assert world.writes == [], "writes at rest"

    def _occupied(self) -> bool:
        return any(name.startswith("other-") for name in self.world.pods)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
