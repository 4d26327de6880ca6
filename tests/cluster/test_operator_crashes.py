"""The operator killed between any two of its writes: never two units on a domain, never half a unit
started, and when it comes back it finishes, and then rests."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.killing_proxy import KillingProxy, killing_proxy
from tests.cluster.operators import WITHIN_S, Home, Operator, afd, install
from tests.rack import Rack
from tests.rack.clients import wait
from tests.rack.fixtures import shared_rack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

rack = shared_rack(domains=2, nodes=2, gpus=4)

MOST_WRITES = 60
"""Of one whole life of a unit; a bound for the loops, far above what is counted."""


@pytest.fixture(scope="module")
def home(rack: Rack) -> Home:
    return install(rack)


@pytest.fixture
def proxy(home: Home) -> Iterator[KillingProxy]:
    with killing_proxy(home.rack.place.server) as found:
        yield found


@pytest.fixture
def prod(home: Home) -> str:
    return home.namespace(f"prod-{uuid.uuid4().hex[:6]}")


def ready(home: Home, prod: str) -> bool:
    return home.condition("demo", prod, "Ready") == ("True", "UnitsServe")


def test_one_write_in_each_life(home: Home, proxy: KillingProxy, prod: str) -> None:
    """An operator that never gets further than one write still gets there, write by write."""
    home.rack.apply(afd("demo", prod))
    for _ in range(MOST_WRITES):
        with home.operator(proxy.url) as operator:
            proxy.arm(operator.process.pid, fatal=1)
            wait(
                "it is killed, or all is done",
                lambda operator=operator: operator.process.poll() is not None or ready(home, prod),
                WITHIN_S,
                operator.log.read_text,
            )
        home.check(prod)
        if ready(home, prod):
            break
    assert ready(home, prod)

    home.rack.kubectl("delete", "afd", "demo", "-n", prod)
    for _ in range(MOST_WRITES):
        with home.operator(proxy.url) as operator:
            proxy.arm(operator.process.pid, fatal=1)
            wait(
                "it is killed, or all is done",
                lambda operator=operator: operator.process.poll() is not None or not home.domains(),
                WITHIN_S,
                operator.log.read_text,
            )
        if not home.domains():
            break
    assert home.domains() == {}


def test_killed_after_any_write_it_finishes_in_its_next_life(
    home: Home, proxy: KillingProxy, prod: str
) -> None:
    """Each life first finishes what the one before left, rests, and then dies one write later than that."""
    for fatal in itertools.count(1):
        with home.operator(proxy.url) as operator:
            proxy.arm(operator.process.pid, fatal=0)
            if fatal > 1:
                finish(home, operator, prod)
            proxy.arm(operator.process.pid, fatal)
            home.rack.apply(afd("demo", prod))
            wait(
                "it is killed, or all is done",
                lambda operator=operator: operator.process.poll() is not None or ready(home, prod),
                WITHIN_S,
                operator.log.read_text,
            )
            home.check(prod)
            if operator.process.poll() is None:
                finish(home, operator, prod)
                break
        assert fatal < MOST_WRITES, f"still writing: {proxy.writes}"
    assert fatal > 12, f"only {fatal} writes: what was killed?"


def finish(home: Home, operator: Operator, prod: str) -> None:
    """The unit comes up whole, then nothing is written, then it goes without a trace."""
    wait("it serves", lambda: ready(home, prod), WITHIN_S, operator.log.read_text)
    home.check(prod)
    assert home.writes_at_rest(operator, "demo", prod) == []
    home.rack.kubectl("delete", "afd", "demo", "-n", prod)
    wait("its domain is free", lambda: not home.domains(), WITHIN_S, operator.log.read_text)
    wait("its pods are gone", lambda: not home.pods(prod, unit=False), WITHIN_S)
