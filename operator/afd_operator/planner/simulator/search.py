"""Goodput: the highest arrival rate at which `percentile` of requests meet both targets.

Bisection on the rate with common random numbers: every rate serves the same requests in the same order,
only closer together, so attainment falls almost monotonically and the edge is sharp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from afd_operator.planner.simulator.serving import Simulation, System
from afd_operator.planner.simulator.traffic import Lengths, Request, poisson
from afd_operator.planner.workload import Slo

HORIZON_S = 120.0
"""Arrivals last at least this long: a burst that a system could absorb for a second is not a rate it sustains."""
COARSE_HORIZON_S, COARSE_TOLERANCE = 40.0, 0.08
LOWEST, HIGHEST = 0.01, 4096.0
"""Rates outside are "none" and "unbounded"."""
FEWEST, MOST = 200, 20_000
WARM_UP = 0.2
"""Share of the first requests that is not judged: they meet an empty system."""


@dataclass(frozen=True)
class Outcome:
    """What the judged requests of one run saw; seconds."""

    attained: float
    ttft_p: float
    tpot_p: float
    finished: int
    requests: int
    prefill_busy: float
    decode_busy: float


def judge(run: Simulation, slo: Slo) -> Outcome:
    """Share of requests within both targets; a request that never finished is not."""
    judged = run.requests[int(len(run.requests) * WARM_UP) :]
    ttft = np.array([np.inf if r.finish is None or r.ttft is None else r.ttft for r in judged])
    tpot = np.array([np.inf if r.finish is None or r.tpot is None else r.tpot for r in judged])
    within = (ttft <= (slo.ttft_s or np.inf)) & (tpot <= (slo.tpot_s or np.inf))
    span = run.loop.now or 1.0
    return Outcome(
        float(within.mean()),
        float(np.percentile(ttft, slo.percentile, method="higher")),
        float(np.percentile(tpot, slo.percentile, method="higher")),
        sum(r.finish is not None for r in run.requests),
        len(run.requests),
        run.busy_s["prefill"] / span,
        run.busy_s["decode"] / span,
    )


def at_rate(
    system: System, lengths: Lengths, slo: Slo, rate: float, *, seed: int, horizon_s: float = HORIZON_S
) -> Outcome:
    """One run at `rate` requests per second, for `horizon_s` of arrivals or FEWEST requests."""
    count = min(MOST, max(FEWEST, math.ceil(rate * horizon_s)))
    requests: list[Request] = poisson(lengths, rate=rate, count=count, seed=seed)
    return judge(Simulation(system, requests).run(), slo)


def goodput(
    system: System,
    lengths: Lengths,
    slo: Slo,
    *,
    seed: int,
    horizon_s: float = HORIZON_S,
    tolerance: float = 0.02,
    start: float = 1.0,
) -> float:
    """Requests per second at the edge, within `tolerance`; 0 if even a trickle misses the targets.

    Doubles or halves from `start` until the edge is inside, then bisects.
    """
    enough = slo.percentile / 100.0

    def sustained(rate: float) -> bool:
        return at_rate(system, lengths, slo, rate, seed=seed, horizon_s=horizon_s).attained >= enough

    low, high = (start, 2 * start) if sustained(start) else (start / 2, start)
    while low == start and high < HIGHEST and sustained(high):
        low, high, start = high, 2 * high, high
    while high <= start and not sustained(low):
        low, high = low / 2, low
        if high < LOWEST:
            return 0.0
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (middle, high) if sustained(middle) else (low, middle)
    return low


def best_setting(
    candidates: list[System], lengths: Lengths, slo: Slo, *, seed: int
) -> tuple[System | None, float]:
    """The candidate of highest goodput: a coarse pass over all, a fine one over the best."""
    rates = []
    guess = 1.0
    for system in candidates:
        rate = goodput(
            system,
            lengths,
            slo,
            seed=seed,
            horizon_s=COARSE_HORIZON_S,
            tolerance=COARSE_TOLERANCE,
            start=guess,
        )
        rates.append(rate)
        guess = rate or guess
    if not candidates or max(rates) == 0.0:
        return None, 0.0
    best = candidates[max(range(len(rates)), key=rates.__getitem__)]
    return best, goodput(best, lengths, slo, seed=seed + 1, start=max(rates))
