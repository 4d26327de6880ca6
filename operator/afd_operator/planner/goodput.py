"""ExpertPlex's goodput and its online SM budget (arXiv:2607.18002, Eq. 1 and 4).

    G(l, q) = min( B_p / T_p , B_d / (T_d O) )        requests per second

A request takes one prefill iteration and O decode iterations, so the slower of the two phases bounds
the flow. `q` is the decode share of an expert GPU's SMs while both phases have work; at run time it
follows the decode load that is really there, measured in tiles.
"""

from __future__ import annotations

import math


def goodput(
    *,
    prefill_batch: float,
    prefill_time_s: float,
    decode_batch: float,
    decode_time_s: float,
    output_tokens: float,
) -> float:
    """Requests per second that both phases sustain; raises ValueError for a time or length of zero."""
    if prefill_time_s <= 0 or decode_time_s <= 0 or output_tokens <= 0:
        raise ValueError("an iteration takes time and a request has output")
    return min(prefill_batch / prefill_time_s, decode_batch / (decode_time_s * output_tokens))


def online_budget(budget: int, *, tiles: float, expected_tiles: float, cluster: int, most: int) -> int:
    """q' = min(Q_max, ceil_c(q x_moe / expected x_moe)), in SMs.

    `cluster` is the CTA cluster of the kernel: its CTAs run the same tile, so SMs come in multiples of
    it. `most` is what must stay below the whole GPU for prefill to advance.
    """
    if expected_tiles <= 0 or cluster < 1 or most < cluster:
        raise ValueError("a budget scales against expected tiles, in whole clusters, below a maximum")
    wanted = budget * tiles / expected_tiles
    return min(most // cluster * cluster, math.ceil(wanted / cluster - 1e-9) * cluster)
