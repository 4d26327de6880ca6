"""Two operators: one works, the other waits; what happens to the Lease happens to them."""

from __future__ import annotations

import pytest
from kubernetes import client
from tests.cluster.operators import LEADER, SYSTEM, WITHIN_S, Home, install
from tests.rack import Rack
from tests.rack.clients import wait
from tests.rack.fixtures import shared_rack

pytestmark = pytest.mark.cluster

rack = shared_rack(domains=1, nodes=1, gpus=4)


@pytest.fixture(scope="module")
def home(rack: Rack) -> Home:
    return install(rack)


def holder(home: Home) -> str:
    lease = client.CoordinationV1Api(home.rack.api).read_namespaced_lease(LEADER, SYSTEM)
    return str(lease.spec.holder_identity)


def test_a_standby_waits_and_takes_over_at_once_when_the_leader_ends(home: Home) -> None:
    with home.operator(identity="one") as one, home.operator(identity="two") as two:
        wait("one of them leads", lambda: one.leads() or two.leads(), WITHIN_S)
        leader, standby = (one, two) if one.leads() else (two, one)
        assert not standby.leads()
        leader.process.terminate()
        assert leader.process.wait(5) == 0
        wait("the other leads", standby.leads, WITHIN_S, standby.log.read_text)


def test_a_leader_that_loses_the_lease_ends(home: Home) -> None:
    with home.operator(identity="one") as one:
        wait("it leads", one.leads, WITHIN_S, one.log.read_text)
        stolen = {"spec": {"holderIdentity": "thief"}}
        client.CoordinationV1Api(home.rack.api).patch_namespaced_lease(LEADER, SYSTEM, stolen)
        assert one.process.wait(WITHIN_S) == 1
        assert "lost the lead" in one.log.read_text()
    assert holder(home) == "thief"


def test_the_lease_of_a_leader_that_was_killed_is_taken_when_it_has_run_out(home: Home) -> None:
    with home.operator(identity="one") as one:
        wait("it leads", one.leads, WITHIN_S, one.log.read_text)
        one.process.kill()
        one.process.wait()
    assert holder(home) == "one"
    with home.operator(identity="two") as two:
        wait("the next leads", two.leads, WITHIN_S, two.log.read_text)
