"""Latency of one kernel from a handful of timings: a fit for the shape, a curve for the detail.

    t(x, s) = a + b x + g x s + d x s^2          (ExpertPlex, arXiv:2607.18002, Eq. 2)

`x` is a batch, a tile count or a weight matrix, `s` a sequence length or rows; all coefficients are
non-negative, so t never falls when work grows. The fit minimises *relative* error. Real kernels step
between tile shapes and split counts, so the fit alone is off by 5 to 20 %; `Component` therefore puts a
monotone curve through the table, over the fit's own prediction as the coordinate, and keeps what is
still unexplained as `sigma`. Outside the table the curve continues parallel to the fit, and the fit's
own error applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from afd_operator.planner.errors import MissingData

Array: TypeAlias = NDArray[np.float64]
Values: TypeAlias = float | Array

MEASUREMENT_NOISE = 0.01
"""Least relative error claimed for any timing: repeated rows of one table differ by about as much."""

KNOTS = 16
"""Points of a component's curve at most: enough for the steps of a kernel, few enough not to follow noise."""


@dataclass(frozen=True)
class Fit:
    """t(x, s) in microseconds. `sigma` is the RMS relative error over the rows it was fitted to."""

    a: float
    b: float
    g: float
    d: float
    sigma: float

    def __call__(self, x: Values, s: Values) -> Values:
        return self.a + x * (self.b + s * (self.g + s * self.d))


def fit(x: Array, s: Array, latency_us: Array) -> Fit:
    """Non-negative least squares of the relative error; raises MissingData for fewer than two rows.

    With four columns, dropping the most negative one until none is negative finds the optimum of these
    tables as an active-set solver would.
    """
    if len(latency_us) < 2 or not (latency_us > 0).all():
        raise MissingData(f"{len(latency_us)} usable timings are too few for a latency fit")
    columns = np.stack([np.ones_like(x), x, x * s, x * s * s], axis=1) / latency_us[:, None]
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0] = 1.0
    kept = [i for i in range(4) if np.ptp(columns[:, i] * latency_us) > 0 or i == 0]
    while True:
        solution, *_ = np.linalg.lstsq(columns[:, kept] / scale[kept], np.ones(len(x)), rcond=None)
        if (solution >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(np.argmin(solution)))
    coefficients = np.zeros(4)
    coefficients[kept] = np.maximum(solution, 0) / scale[kept]
    a, b, g, d = (float(c) for c in coefficients)
    residual = (a + x * (b + s * (g + s * d))) / latency_us - 1
    return Fit(a, b, g, d, float(np.sqrt(np.mean(residual**2))))


@dataclass(frozen=True)
class Component:
    """A fit corrected by the table it came from. Microseconds; monotone in x and in s."""

    fit: Fit
    log_fit: Array
    log_time: Array
    sigma: float
    source: str

    @classmethod
    def from_rows(
        cls, x: Array, s: Array, latency_us: Array, source: str, base: Fit | None = None
    ) -> Component:
        """The component through rows (x, s, latency); `base` is a fit over a wider table, if there is one."""
        shape = base or fit(x, s, latency_us)
        predicted = np.asarray(shape(x, s), dtype=float)
        log_fit, log_time = _curve(np.log(predicted), np.log(latency_us))
        left = np.interp(np.log(predicted), log_fit, log_time) - np.log(latency_us)
        unexplained = float(np.sqrt(np.mean(left**2)))
        return cls(shape, log_fit, log_time, max(unexplained, _between_knots(log_fit, log_time)), source)

    def __call__(self, x: Values, s: Values = 1.0) -> Array:
        """Predicted microseconds, element by element."""
        coordinate = np.log(np.asarray(self.fit(x, s), dtype=float))
        inside = np.clip(coordinate, self.log_fit[0], self.log_fit[-1])
        return np.asarray(np.exp(np.interp(inside, self.log_fit, self.log_time) + (coordinate - inside)))

    def error(self, x: Values, s: Values = 1.0) -> float:
        """Relative standard deviation of the prediction: the worst over the points asked for."""
        coordinate = np.log(np.asarray(self.fit(x, s), dtype=float))
        slack = 0.1
        outside = (coordinate < self.log_fit[0] - slack).any() or (
            coordinate > self.log_fit[-1] + slack
        ).any()
        return max(self.sigma, self.fit.sigma) if outside else self.sigma


def _curve(coordinate: Array, value: Array) -> tuple[Array, Array]:
    """At most KNOTS points of a non-decreasing curve through (coordinate, value), in order."""
    order = np.argsort(coordinate, kind="stable")
    coordinate, value = coordinate[order], value[order]
    groups = [g for g in np.array_split(np.arange(len(value)), min(KNOTS, len(value))) if len(g)]
    knots = np.array([coordinate[g].mean() for g in groups])
    heights = np.array([value[g].mean() for g in groups])
    # Noise only ever adds time: where a smaller problem was timed slower, the larger one is right.
    heights = np.minimum.accumulate(heights[::-1])[::-1]
    keep = np.concatenate([[True], np.diff(knots) > 1e-9])
    return knots[keep], heights[keep]


def _between_knots(coordinate: Array, height: Array) -> float:
    """RMS error of reading each inner knot off its two neighbours: what interpolation costs here."""
    if len(height) < 3:
        return MEASUREMENT_NOISE
    share = (coordinate[1:-1] - coordinate[:-2]) / (coordinate[2:] - coordinate[:-2])
    read = height[:-2] + share * (height[2:] - height[:-2])
    return max(float(np.sqrt(np.mean((read - height[1:-1]) ** 2))), MEASUREMENT_NOISE)
