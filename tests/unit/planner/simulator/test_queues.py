"""The queue and the clock against textbook formulas. Means over long runs with fixed seeds; the tolerances are
several standard errors wide, so a wrong formula fails and chance does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from afd_operator.planner.simulator.loop import Loop
from afd_operator.planner.simulator.station import Station

JOBS = 150_000


def run(station: Station, loop: Loop, arrivals: np.ndarray, services: np.ndarray) -> float:  # type: ignore[type-arg]
    """Feed the jobs; mean wait of the last nine tenths."""
    for time, service in zip(np.cumsum(arrivals).tolist(), services.tolist(), strict=True):
        loop.at(time, lambda s=service: station.submit(s, lambda: None))  # type: ignore[misc]
    loop.run()
    return float(np.mean(station.waits[len(station.waits) // 10 :]))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_m_d_1_mean_wait(load: float) -> None:
    """Poisson arrivals, fixed tile time: W = rho s / (2 (1 - rho)) (Pollaczek-Khinchine)."""
    rng, loop = np.random.default_rng(7), Loop()
    station = Station(loop)
    wait = run(station, loop, rng.exponential(1 / load, JOBS), np.ones(JOBS))
    assert wait == pytest.approx(load / (2 * (1 - load)), rel=0.05)
    assert station.busy_time / loop.now == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (8, 0.6)])
def test_m_m_c_waits_as_often_and_as_long_as_erlang_c_says(servers: int, load: float) -> None:
    rng, loop = np.random.default_rng(5), Loop()
    station = Station(loop, servers)
    offered = servers * load
    wait = run(station, loop, rng.exponential(1 / offered, JOBS), rng.exponential(1.0, JOBS))
    blocking = erlang_b(servers, offered)
    waits = blocking / (1 - load * (1 - blocking))
    assert np.mean(np.array(station.waits) > 0) == pytest.approx(waits, rel=0.06)
    assert wait == pytest.approx(waits / (servers - offered), rel=0.12)


@pytest.mark.parametrize(("servers", "offered"), [(2, 1.5), (10, 8.0)])
def test_a_queue_without_room_loses_erlang_b(servers: int, offered: float) -> None:
    rng, loop = np.random.default_rng(13), Loop()
    station = Station(loop, servers, room=0)
    run(station, loop, rng.exponential(1 / offered, JOBS), rng.exponential(1.0, JOBS))
    assert station.refused / JOBS == pytest.approx(erlang_b(servers, offered), rel=0.05)


def erlang_b(servers: int, offered: float) -> float:
    terms = [offered**k / math.factorial(k) for k in range(servers + 1)]
    return terms[-1] / sum(terms)


def test_first_come_first_served_and_ties_in_order_of_scheduling() -> None:
    loop, order = Loop(), []
    station = Station(loop)
    for name in "abc":
        loop.at(1.0, lambda n=name: station.submit(2.0, lambda: order.append((n, loop.now))))  # type: ignore[misc]
    loop.run()
    assert order == [("a", 3.0), ("b", 5.0), ("c", 7.0)]


def test_time_never_runs_backwards() -> None:
    loop = Loop()
    loop.at(5.0, lambda: None)
    loop.run()
    with pytest.raises(ValueError, match="scheduled at 5"):
        loop.at(4.0, lambda: None)


def test_a_run_can_stop_and_go_on() -> None:
    loop, seen = Loop(), []
    for t in (1.0, 2.0, 3.0):
        loop.at(t, lambda v=t: seen.append(v))  # type: ignore[misc]
    loop.run(until=2.0)
    assert seen == [1.0, 2.0]
    loop.run()
    assert seen == [1.0, 2.0, 3.0]
