"""Serving runs: nothing is lost or served twice, runs repeat, and a failure costs what its policy says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from tests.unit.planner.simulator.worlds import KINDS, system

from afd_operator.planner.errors import InvalidWorkload, MissingData
from afd_operator.planner.simulator.search import at_rate, goodput, judge
from afd_operator.planner.simulator.serving import Failure, Simulation, System
from afd_operator.planner.simulator.traffic import SHAREGPT, Lengths, Request, poisson, replay
from afd_operator.planner.workload import Slo, read_trace

SHORT = Lengths("short", 200, 0.5, 20, 0.5, 1000)
SLO = Slo(1.0, 0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_is_served_once_in_causal_order(kind: str) -> None:
    requests = poisson(SHORT, rate=20, count=300, seed=1)
    run = Simulation(system(kind), requests).run()
    assert len(run.decoding) == 0
    assert run.decoding.reserved == pytest.approx(0, abs=1e-6)
    for request in requests:
        assert request.first_token is not None
        assert request.finish is not None
        assert request.arrival < request.first_token <= request.finish


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_a_function_of_its_seed(kind: str) -> None:
    def finishes(seed: int) -> list[float | None]:
        requests = poisson(SHORT, rate=20, count=200, seed=seed)
        Simulation(system(kind), requests).run()
        return [r.finish for r in requests]

    assert finishes(1) == finishes(1)
    assert finishes(1) != finishes(2)


def test_a_lone_request_takes_its_iterations() -> None:
    one = [Request(0.0, 100, 11)]
    Simulation(system("pdd", prefill_s=0.2, decode_s=0.01), one).run()
    assert one[0].ttft == pytest.approx(0.2)
    assert one[0].tpot == pytest.approx(0.01)


def test_kv_room_makes_requests_wait_not_fail() -> None:
    """Room for one request of 120 tokens at a time: the third waits for two."""
    three = [Request(0.0, 100, 11) for _ in range(3)]
    Simulation(replace(system("pdd", prefill_s=0.2, decode_s=0.01), kv_tokens=120.0), three).run()
    assert [r.finish for r in three] == pytest.approx([0.3, 0.6, 0.9])


def test_a_request_larger_than_the_room_is_served_alone() -> None:
    big = [Request(0.0, 5000, 5)]
    Simulation(replace(system("pdd"), kv_tokens=100.0), big).run()
    assert big[0].finish is not None


def test_goodput_is_the_edge() -> None:
    one = system("pdd", prefill_s=0.2, decode_s=0.01)
    one = replace(one, kv_tokens=2_000.0)
    rate = goodput(one, SHORT, SLO, seed=3, horizon_s=20, tolerance=0.05)
    assert rate > 1
    assert at_rate(one, SHORT, SLO, rate, seed=3, horizon_s=20).attained >= 0.9
    assert at_rate(one, SHORT, SLO, rate * 1.2, seed=3, horizon_s=20).attained < 0.9


def test_targets_that_nothing_meets_have_no_goodput() -> None:
    assert goodput(system("afd"), SHORT, Slo(1e-6, 1e-6), seed=3, horizon_s=5) == 0.0


@dataclass(frozen=True)
class Blast:
    kind: str
    role: str
    replays: str


@pytest.mark.parametrize(
    "case",
    [
        Blast("afd", "attention", "one lane"),
        Blast("afd", "expert", "none"),
        Blast("colocated", "attention", "all"),
        Blast("pdd", "attention", "all"),
    ],
    ids=lambda c: f"{c.kind}-{c.role}",
)
def test_blast_radius_of_a_lost_node(case: Blast) -> None:
    """afd loses one lane's requests or none; a collective loses all that run. Everything is served in the end."""
    requests = poisson(SHORT, rate=200, count=400, seed=5)
    run = Simulation(system(case.kind), requests, (Failure(1.0, 2.0, case.role),))  # type: ignore[arg-type]
    run.run(until=0.999999)
    running = len(run.decoding)
    run.run()
    replayed = sum(r.replays for r in requests)
    expected = {"one lane": running / run.system.decode_gpus, "none": 0, "all": running}[case.replays]
    assert running > 4
    assert replayed == pytest.approx(expected, abs=3)
    assert all(r.finish is not None for r in requests)
    assert len(run.decoding) == 0


def test_a_lost_lane_costs_less_than_a_lost_collective() -> None:
    def attained(kind: str) -> float:
        requests = poisson(SHORT, rate=100, count=1500, seed=6)
        return judge(Simulation(system(kind), requests, (Failure(5.0, 5.0),)).run(), SLO).attained

    assert attained("afd") > attained("colocated") + 0.1


def test_traces_are_replayed_at_any_speed() -> None:
    trace = read_trace("t", "t_s,context_tokens,generated_tokens\n0,10,3\n4,20,5\n")
    assert [r.arrival for r in replay(trace, speed=2.0)] == [0.0, 2.0]
    assert len(replay(trace, limit=1)) == 1


def test_the_same_seed_gives_the_same_lengths_at_every_rate() -> None:
    slow, fast = poisson(SHAREGPT, rate=1, count=50, seed=9), poisson(SHAREGPT, rate=10, count=50, seed=9)
    assert [(r.prompt, r.output) for r in slow] == [(r.prompt, r.output) for r in fast]
    assert slow[-1].arrival == pytest.approx(10 * fast[-1].arrival)
    with pytest.raises(InvalidWorkload):
        poisson(SHAREGPT, rate=0, count=5, seed=1)


def test_a_system_without_room_for_kv_does_not_exist() -> None:
    with pytest.raises(MissingData, match="no room for KV"):
        System(**{**vars(system("afd")), "kv_tokens": -1.0})
