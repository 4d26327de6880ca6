"""Requests: when they come and how long they are, drawn from a seed or read from a trace.

The ShareGPT- and LooGLE-like lengths are log-normal with the means below. ShareGPT's are the means that
DistServe reports for it (755.5 in, 200.3 out). LooGLE's answers are short and its documents are longer than
24,000 tokens by its authors' description; ExpertPlex does not print the lengths it sampled and truncated,
so 16,000 in and 100 out are this project's assumption.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from afd_operator.planner.errors import InvalidWorkload
from afd_operator.planner.workload import Trace, Workload


@dataclass(frozen=True)
class Lengths:
    """Log-normal token counts with these means and coefficients of variation, cut at `most`."""

    name: str
    prompt_mean: float
    prompt_cv: float
    output_mean: float
    output_cv: float
    most: int

    def draw(self, rng: np.random.Generator, count: int) -> tuple[list[int], list[int]]:
        return (
            _lognormal(rng, count, self.prompt_mean, self.prompt_cv, self.most),
            _lognormal(rng, count, self.output_mean, self.output_cv, self.most),
        )

    def workload(self) -> Workload:
        """Means, for planning a layout (drawn with a fixed seed, so that cutting is in them)."""
        prompts, outputs = (np.array(v) for v in self.draw(np.random.default_rng(0), 4000))
        return Trace(self.name, np.zeros(len(prompts)), prompts, outputs).workload()


SHAREGPT = Lengths("ShareGPT-like", 755.5, 1.2, 200.3, 1.0, 4096)
LOOGLE = Lengths("LooGLE-like", 16_000, 0.5, 100, 0.8, 32_768)


def _lognormal(rng: np.random.Generator, count: int, mean: float, cv: float, most: int) -> list[int]:
    variance = np.log1p(cv * cv)
    drawn = rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), count)
    return [int(v) for v in np.clip(np.rint(drawn), 1, most)]


@dataclass(slots=True)
class Request:
    """One request and what became of it; seconds."""

    arrival: float
    prompt: int
    output: int
    first_token: float | None = None
    finish: float | None = None
    replays: int = 0

    @property
    def ttft(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def tpot(self) -> float | None:
        """(finish - first token) / (tokens - 1); 0 for a single token."""
        if self.finish is None or self.first_token is None:
            return None
        return (self.finish - self.first_token) / max(1, self.output - 1)


def poisson(lengths: Lengths, *, rate: float, count: int, seed: int) -> list[Request]:
    """`count` requests at `rate` per second; the same seed gives the same lengths at every rate."""
    if rate <= 0 or count < 1:
        raise InvalidWorkload(f"{count} requests at {rate} per second are no traffic")
    rng = np.random.default_rng(seed)
    prompts, outputs = lengths.draw(rng, count)
    arrivals = np.cumsum(rng.exponential(1.0, count)) / rate
    return [Request(float(t), p, o) for t, p, o in zip(arrivals, prompts, outputs, strict=True)]


def replay(trace: Trace, *, speed: float = 1.0, limit: int | None = None) -> list[Request]:
    """The trace's requests, `speed` times as fast."""
    rows = zip(trace.arrivals_s.tolist(), trace.prompts.tolist(), trace.outputs.tolist(), strict=True)
    return [Request(t / speed, p, o) for t, p, o in list(rows)[:limit]]
