"""Reference kernels against the plainest way to write the same thing, with the shapes that break
kernels: no rows, one row, experts without rows, all rows at one expert, rows that go nowhere."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from afd_runtime.kernels.combine import add_partial, rows_for
from afd_runtime.kernels.grouped_ffn import grouped_ffn, order_by_expert, swiglu_ffn
from afd_runtime.kernels.paged_attention import LayerCache, PagedBatch, paged_attention
from afd_runtime.kernels.router import route_top_k
from afd_runtime.models.shape import ModelShape
from afd_runtime.models.split import ExpertSplit
from afd_runtime.models.stages import ExpertStage, ExpertWeights

HIDDEN, INNER = 6, 4


def experts(count: int) -> ExpertWeights:
    source = torch.Generator().manual_seed(0)
    return ExpertWeights(
        torch.randn(count, 2 * INNER, HIDDEN, generator=source),
        torch.randn(count, HIDDEN, INNER, generator=source),
    )


def stage(count: int, owned: range, weights: ExpertWeights) -> ExpertStage:
    shape = ModelShape(
        layers=1,
        hidden=HIDDEN,
        vocab=1,
        kv_heads=1,
        head_dim=2,
        experts=count,
        top_k=2,
        moe_layers=(0,),
        max_position=1,
        eos_token_ids=(),
    )
    part = ExpertWeights(weights.gate_up[owned.start : owned.stop], weights.down[owned.start : owned.stop])
    return ExpertStage(shape, torch.float32, owned, {0: part})


def plain_moe(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, all_experts: ExpertWeights
) -> torch.Tensor:
    """One row and one expert at a time."""
    total = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for expert, weight in zip(ids[row].tolist(), weights[row].tolist(), strict=True):
            total[row] += (
                weight
                * swiglu_ffn(x[row : row + 1], all_experts.gate_up[expert], all_experts.down[expert])[0]
            )
    return total


@given(
    rows=st.integers(0, 9),
    count=st.integers(1, 7),
    top_k=st.integers(1, 7),
    workers=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=80, deadline=None)
def test_partial_sums_of_all_workers_are_the_whole(
    rows: int, count: int, top_k: int, workers: int, seed: int
) -> None:
    """Dispatch, experts and combine together, whatever the routing: uneven, empty, all at one."""
    per_worker = -(-count // workers)
    workers = -(-count // per_worker)
    top_k = min(top_k, count)
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, HIDDEN, generator=source)
    ids = torch.rand(rows, count, generator=source).argsort(dim=1)[:, :top_k].to(torch.int32)
    weights = torch.rand(rows, top_k, generator=source)
    all_experts, split = experts(count), ExpertSplit(count, workers)
    total = torch.zeros_like(x)
    for worker in range(workers):
        picked, local = rows_for(ids, split.owned(worker))
        part = stage(count, split.owned(worker), all_experts).forward(0, x[picked], local, weights[picked])
        add_partial(total, picked, part)
    assert torch.allclose(total, plain_moe(x, ids, weights, all_experts), atol=1e-5)


def test_a_row_travels_once_to_a_worker() -> None:
    """However many of the worker's experts it goes to; and not at all to the others."""
    ids = torch.tensor([[0, 1], [1, 4], [5, 4]], dtype=torch.int32)
    picked, local = rows_for(ids, range(3))
    assert (picked.tolist(), local.tolist()) == ([0, 1], [[0, 1], [1, -1]])


def test_rows_are_ordered_by_expert_then_by_row() -> None:
    order = order_by_expert(torch.tensor([[2, 0], [-1, 2], [0, -1]]), experts=4)
    assert (order.rows.tolist(), order.picks.tolist(), order.counts) == (
        [0, 2, 0, 1],
        [1, 4, 0, 3],
        [2, 0, 2, 0],
    )


def test_no_rows_at_all() -> None:
    weights = experts(3)
    assert grouped_ffn(torch.empty(0, HIDDEN), [0, 0, 0], weights.gate_up, weights.down).shape == (0, HIDDEN)
    assert order_by_expert(torch.empty(0, 2, dtype=torch.int32), 3).counts == [0, 0, 0]


@pytest.mark.parametrize("normalise", [True, False])
def test_router_weights(normalise: bool) -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
    ids, weights = route_top_k(logits, 2, normalise)
    probabilities = logits.softmax(-1)[0, [1, 2]]
    expected = probabilities / probabilities.sum() if normalise else probabilities
    assert ids.tolist() == [[1, 2]]
    assert torch.allclose(weights[0], expected)


def test_router_weights_take_the_logits_precision() -> None:
    """As transformers does: rounded to bf16 after the float32 softmax."""
    _, weights = route_top_k(torch.tensor([[0.3, 0.1, 0.2]], dtype=torch.bfloat16), 2, True)
    assert torch.equal(weights, weights.bfloat16().float())


@pytest.mark.parametrize("heads", [1, 2, 6])
@pytest.mark.parametrize("counts", [[1, 1, 1], [3, 1], [4]], ids=["decode", "mixed", "prefill"])
def test_paged_attention_is_attention(heads: int, counts: list[int]) -> None:
    """Pages scattered at random, sequences of unequal length, every free slot poisoned with NaN."""
    source = torch.Generator().manual_seed(3)
    kv_heads, width, lengths = (
        (2 if heads % 2 == 0 else 1),
        4,
        [count + extra for count, extra in zip(counts, (0, 5, 2), strict=False)],
    )
    slots = torch.randperm(30, generator=source)
    cache = LayerCache(
        torch.full((31, kv_heads, width), torch.nan), torch.full((31, kv_heads, width), torch.nan)
    )
    cache.keys[30] = cache.values[30] = 0
    read = torch.full((len(counts), max(lengths)), 30)
    used, expected, queries = 0, [], []
    for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        read[number, :length] = slots[used : used + length]
        used += length
        keys, values = torch.randn(2, length, kv_heads, width, generator=source)
        cache.write(read[number, :length], keys, values)
        q = torch.randn(count, heads, width, generator=source)
        queries.append(q)
        for row in range(count):
            seen = length - count + row + 1
            k, v = (t[:seen].repeat_interleave(heads // kv_heads, dim=1) for t in (keys, values))
            scores = torch.einsum("hd,shd->hs", q[row], k) / width**0.5
            expected.append(torch.einsum("hs,shd->hd", scores.softmax(-1), v).flatten())
    batch = PagedBatch(counts, lengths, torch.empty(0, dtype=torch.int64), read)
    got = paged_attention(torch.cat(queries), cache, batch)
    assert torch.allclose(got, torch.stack(expected), atol=1e-5)


def test_swiglu() -> None:
    x, weights = torch.randn(2, HIDDEN), experts(1)
    gate, up = x @ weights.gate_up[0, :INNER].T, x @ weights.gate_up[0, INNER:].T
    assert torch.allclose(
        swiglu_ffn(x, weights.gate_up[0], weights.down[0]), (F.silu(gate) * up) @ weights.down[0].T
    )
