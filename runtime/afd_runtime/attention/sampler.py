"""How a token is chosen from logits.

A token is a pure function of (logits, sampling, position). The only randomness is one number in
[0, 1) from a counter-based generator, Philox (Salmon et al. 2011), with the request's seed as key and
the position as counter: whichever batch, lane or replay comes to this position draws the same number.

    logits / temperature -> softmax -> keep top k -> keep top p of what is left -> inverse CDF
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from afd_runtime.protocol.plan import Sampling


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) of (seed, position): 53 bits of the first Philox word."""
    word = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (word >> 11) * 2.0**-53


def sample(logits: torch.Tensor, samplings: Sequence[Sampling], positions: Sequence[int]) -> list[int]:
    """logits [rows, vocab] -> a token a row; `positions[i]` is where token i will stand."""
    greedy = logits.argmax(dim=-1).tolist() if len(samplings) else []
    return [
        int(best) if how.temperature == 0 else _draw(row, how, position)
        for best, row, how, position in zip(greedy, logits, samplings, positions, strict=True)
    ]


def _draw(logits: torch.Tensor, how: Sampling, position: int) -> int:
    """logits [vocab] -> one token. Candidates are sorted by falling probability, ties by token, so
    the cumulative sum does not depend on how the sort was done."""
    kept = min(how.top_k, logits.shape[0]) if how.top_k else logits.shape[0]
    ranked, tokens = torch.sort(logits.double() / how.temperature, descending=True, stable=True)
    ladder = torch.softmax(ranked[:kept], dim=0).cumsum(0)
    # The token that crosses top_p is kept, so at least one always is.
    nucleus = int(torch.searchsorted(ladder, how.top_p * float(ladder[-1]))) + 1
    ladder = ladder[: min(nucleus, kept)]
    place = int(torch.searchsorted(ladder, uniform(how.seed, position) * float(ladder[-1]), right=True))
    return int(tokens[min(place, ladder.shape[0] - 1)])
