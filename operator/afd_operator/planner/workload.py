"""What is asked of a unit: how long prompts and answers are, how often they come.

Memory and attention time follow the *context of the token being decoded*, not the prompt: long answers
decode more tokens, and each at a longer context. Over a trace its mean is

    sum_i o_i (p_i + (o_i - 1)/2) / sum_i o_i        p_i prompt, o_i output of request i

which is what a slot of a busy lane holds on average. Its variance drives the barrier term: a step ends
when the slowest lane does.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afd_operator.planner.errors import InvalidTarget, InvalidWorkload

MAX_TOKENS = 10**8
MAX_REQUESTS = 10**7

COLUMNS = {
    "t": ("t_s", "timestamp_ms", "timestamp", "TIMESTAMP"),
    "p": ("input_length", "context_tokens", "ContextTokens", "input_tokens"),
    "o": ("output_length", "generated_tokens", "GeneratedTokens", "output_tokens"),
}
"""Column names of the Mooncake and Azure traces."""


@dataclass(frozen=True)
class Workload:
    """Lengths in tokens; `rate` in requests per second, None where only capacity is asked."""

    prompt_tokens: float
    output_tokens: float
    decode_context_tokens: float
    decode_context_sd: float = 0.0
    rate: float | None = None
    name: str = "fixed"

    def __post_init__(self) -> None:
        for field in ("prompt_tokens", "output_tokens", "decode_context_tokens"):
            value = getattr(self, field)
            if not (math.isfinite(value) and 1 <= value <= MAX_TOKENS):
                raise InvalidWorkload(
                    f"workload {self.name}: {field} is {value}, not between 1 and {MAX_TOKENS}"
                )
        if not (math.isfinite(self.decode_context_sd) and self.decode_context_sd >= 0):
            raise InvalidWorkload(f"workload {self.name}: the spread of contexts is {self.decode_context_sd}")
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise InvalidWorkload(f"workload {self.name}: {self.rate} requests per second")

    @classmethod
    def lengths(cls, prompt_tokens: float, output_tokens: float, *, rate: float | None = None) -> Workload:
        """Every request alike: prompt p, output o, decoded at contexts p .. p + o - 1."""
        return cls(
            prompt_tokens,
            output_tokens,
            prompt_tokens + (output_tokens - 1) / 2,
            decode_context_sd=output_tokens / math.sqrt(12.0),
            rate=rate,
        )

    @classmethod
    def decode_at(cls, context_tokens: float) -> Workload:
        """A synchronous decode window at one context, as FastAFD's and many kernel benchmarks measure."""
        return cls(context_tokens, 1.0, context_tokens, name=f"decode at {context_tokens:g}")


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival. Times in seconds from the first; lengths in tokens."""

    name: str
    arrivals_s: NDArray[np.float64]
    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.prompts)

    def workload(self) -> Workload:
        """The trace's means, weighted as a busy slot sees them."""
        prompt, output = self.prompts.astype(float), self.outputs.astype(float)
        context, variance = decode_context(prompt, output)
        span = float(self.arrivals_s[-1] - self.arrivals_s[0]) if len(self) > 1 else 0.0
        return Workload(
            float(prompt.mean()),
            float(output.mean()),
            context,
            math.sqrt(variance),
            rate=(len(self) - 1) / span if span > 0 else None,
            name=self.name,
        )


def decode_context(prompt: NDArray[np.float64], output: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and variance of the context over all decoded tokens of requests (p_i, o_i)."""
    total = output.sum()
    middle = prompt + (output - 1) / 2
    mean = float((output * middle).sum() / total)
    # Within a request contexts are consecutive integers: variance (o^2 - 1)/12.
    second = float((output * (middle**2 + (output**2 - 1) / 12)).sum() / total)
    return mean, max(0.0, second - mean * mean)


def read_trace(name: str, text: str) -> Trace:
    """A CSV with arrival, prompt and output columns (COLUMNS); raises InvalidWorkload with the row.

    A column called `*_ms` holds milliseconds. Requests without output are refused: they decode nothing.
    """
    reader = csv.DictReader(io.StringIO(text))
    have = reader.fieldnames or []
    column = {key: next((c for c in options if c in have), None) for key, options in COLUMNS.items()}
    if column["p"] is None or column["o"] is None:
        raise InvalidWorkload(
            f"trace {name}: no columns for prompt and output lengths in {', '.join(have) or 'an empty file'}"
        )
    rows: list[tuple[float, int, int]] = []
    for number, row in enumerate(reader, start=2):
        try:
            rows.append(
                (
                    float(row[column["t"]]) if column["t"] else 0.0,
                    int(row[column["p"]]),
                    int(row[column["o"]]),
                )
            )
        except (TypeError, ValueError):
            raise InvalidWorkload(f"trace {name}, line {number}: {dict(row)} is not a request") from None
        if len(rows) > MAX_REQUESTS:
            raise InvalidWorkload(f"trace {name}: more than {MAX_REQUESTS} requests")
    if not rows:
        raise InvalidWorkload(f"trace {name}: no requests")
    t, p, o = (np.array(values) for values in zip(*rows, strict=True))
    if not np.isfinite(t).all() or (np.diff(t) < 0).any():
        raise InvalidWorkload(f"trace {name}: arrivals are not in order")
    if p.min() < 1 or o.min() < 1 or max(p.max(), o.max()) > MAX_TOKENS:
        raise InvalidWorkload(f"trace {name}: lengths must lie between 1 and {MAX_TOKENS} tokens")
    scale = 1e-3 if (column["t"] or "").endswith("_ms") else 1.0
    return Trace(name, (t - t[0]) * scale, p.astype(np.int64), o.astype(np.int64))


@dataclass(frozen=True)
class Slo:
    """Service levels at a percentile of requests. Seconds; None = not asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    percentile: float = 90.0

    def __post_init__(self) -> None:
        for field in ("ttft_s", "tpot_s"):
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidTarget(f"{field} is {value}: a target is a positive number of seconds")
        if not 0 < self.percentile < 100:
            raise InvalidTarget(f"percentile {self.percentile} is not between 0 and 100")
