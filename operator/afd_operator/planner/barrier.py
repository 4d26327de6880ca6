"""What a step loses because it ends with its slowest lane.

Each lane sums the contexts of its own requests. With n lanes of b requests, contexts of mean mu and
spread sd, a lane's KV reads have the coefficient of variation sd / (mu sqrt(b)), and the slowest of n is
z_n standard deviations above the mean, z_n the expected maximum of n standard normals (Blom's
approximation). Attention time is linear in KV read, so it stretches by `stretch`; dense time does not.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from afd_operator.planner.fit import Array, Values

_BLOM = 0.375
_TABLE = 4096


def expected_maximum(lanes: int) -> float:
    """z_n: mean of the largest of `lanes` standard normals; 0 for one lane."""
    return NormalDist().inv_cdf((lanes - _BLOM) / (lanes + 1 - 2 * _BLOM))


_Z = np.array([0.0, *(expected_maximum(n) for n in range(1, _TABLE + 1))])


def stretch(lanes: Values, batch: Values, *, mean: float, sd: float) -> Array:
    """Factor >= 1 on attention time: slowest of `lanes` lanes over the average one."""
    z = _Z[np.minimum(np.asarray(lanes, dtype=int), _TABLE)]
    return np.asarray(1.0 + z * sd / (mean * np.sqrt(np.maximum(np.asarray(batch, dtype=float), 1.0))))


def spread_of_lane(batch: float, *, mean: float, sd: float) -> float:
    """Coefficient of variation of one lane's KV reads."""
    return sd / (mean * math.sqrt(batch))
