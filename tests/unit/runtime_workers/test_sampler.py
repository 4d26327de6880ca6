"""A token is a pure function of (logits, sampling, position)."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from afd_runtime.attention.sampler import sample, uniform
from afd_runtime.protocol.plan import MAX_SEED, Sampling

LOGITS = torch.tensor([1.0, 4.0, 2.0, 3.0, 0.0]).log()
"""Probabilities 0.1, 0.4, 0.2, 0.3, 0."""


def draws(how: Sampling, count: int = 2000) -> Counter[int]:
    rows = LOGITS.expand(count, -1)
    return Counter(sample(rows, [how] * count, range(count)))


CASES = (
    ("greedy is the likeliest", Sampling(seed=3), {1}),
    ("temperature keeps all that is possible", Sampling(temperature=1), {0, 1, 2, 3}),
    ("top-k 1 is greedy", Sampling(temperature=1, top_k=1), {1}),
    ("top-k 2", Sampling(temperature=1, top_k=2), {1, 3}),
    ("top-k beyond the vocabulary", Sampling(temperature=1, top_k=99), {0, 1, 2, 3}),
    ("a tiny top-p keeps one", Sampling(temperature=1, top_p=1e-6), {1}),
    ("top-p 0.4 is reached by the first", Sampling(temperature=1, top_p=0.39), {1}),
    ("the token that crosses top-p is kept", Sampling(temperature=1, top_p=0.6), {1, 3}),
    ("top-p counts what top-k left", Sampling(temperature=1, top_k=2, top_p=0.5), {1}),
    ("cold is greedy", Sampling(temperature=1e-3), {1}),
)


@pytest.mark.parametrize(("how", "possible"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_can_be_drawn(how: Sampling, possible: set[int]) -> None:
    assert set(draws(how)) == possible


def test_draws_follow_the_probabilities() -> None:
    """4000 draws, each share within 0.03 (four standard deviations of the widest, 0.0077)."""
    counts = draws(Sampling(temperature=1, seed=5), 4000)
    for token, probability in enumerate((0.1, 0.4, 0.2, 0.3, 0.0)):
        assert abs(counts[token] / 4000 - probability) < 0.03


@given(
    rows=st.lists(st.tuples(st.integers(0, MAX_SEED), st.integers(0, 1 << 20)), min_size=2, max_size=6),
    temperature=st.floats(0.1, 5),
)
@settings(max_examples=50, deadline=None)
def test_neighbours_in_the_batch_change_nothing(rows: list[tuple[int, int]], temperature: float) -> None:
    logits = torch.randn(len(rows), 40, generator=torch.Generator().manual_seed(0))
    hows = [Sampling(temperature=temperature, seed=seed) for seed, _ in rows]
    positions = [position for _, position in rows]
    together = sample(logits, hows, positions)
    alone = [sample(logits[i : i + 1], [hows[i]], [positions[i]])[0] for i in range(len(rows))]
    assert together == alone


def test_the_generator_is_fixed_for_ever() -> None:
    """A replay may run on a newer runtime: these numbers must never change."""
    assert [uniform(0, 0), uniform(1, 0), uniform(0, 1), uniform(MAX_SEED, 131072)] == [
        0.011546754286331562,
        0.3035680343067586,
        0.5023796042735054,
        0.8348361898931347,
    ]


def test_no_rows() -> None:
    assert sample(torch.empty(0, 5), [], []) == []
