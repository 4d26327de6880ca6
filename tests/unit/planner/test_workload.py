"""Mean context of decoded tokens, traces, and targets that make no sense."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afd_operator.planner.errors import InvalidTarget, InvalidWorkload
from afd_operator.planner.workload import Slo, Workload, decode_context, read_trace

AZURE = "t_s,context_tokens,generated_tokens\n0.0,374,44\n4.315,396,109\n4.542,879,55\n"
MOONCAKE = "timestamp_ms,input_length,output_length,n_hash_blocks\n0,6758,500,14\n3000,7322,490,15\n"


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 60)), min_size=1, max_size=12))
def test_decode_context_is_the_mean_over_decoded_tokens(requests: list[tuple[int, int]]) -> None:
    """Counted token by token."""
    contexts = np.concatenate([prompt + np.arange(output) for prompt, output in requests])
    prompts, outputs = (np.array(v, dtype=float) for v in zip(*requests, strict=True))
    mean, variance = decode_context(prompts, outputs)
    assert mean == pytest.approx(contexts.mean())
    assert variance == pytest.approx(contexts.var(), abs=1e-6 * mean**2)


def test_azure_and_mooncake_layouts() -> None:
    azure, mooncake = read_trace("azure", AZURE), read_trace("mooncake", MOONCAKE)
    assert len(azure) == 3
    assert azure.workload().prompt_tokens == pytest.approx((374 + 396 + 879) / 3)
    assert mooncake.arrivals_s.tolist() == [0.0, 3.0], "milliseconds become seconds"
    assert mooncake.workload().rate == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no columns"),
        ("a,b\n1,2\n", "no columns for prompt and output"),
        ("t_s,context_tokens,generated_tokens\n", "no requests"),
        ("t_s,context_tokens,generated_tokens\n0,x,3\n", "line 2"),
        ("t_s,context_tokens,generated_tokens\n0,5\n", "line 2"),
        ("t_s,context_tokens,generated_tokens\n0,5,0\n", "between 1 and"),
        ("t_s,context_tokens,generated_tokens\n0,-5,2\n", "between 1 and"),
        ("t_s,context_tokens,generated_tokens\n5,5,2\n1,5,2\n", "not in order"),
        ("t_s,context_tokens,generated_tokens\nnan,5,2\n", "not in order"),
    ],
)
def test_traces_that_are_none(text: str, says: str) -> None:
    with pytest.raises(InvalidWorkload, match=says):
        read_trace("t", text)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_absurd_targets_and_lengths(bad: float) -> None:
    with pytest.raises(InvalidTarget):
        Slo(ttft_s=bad)
    with pytest.raises(InvalidTarget):
        Slo(tpot_s=bad)
    with pytest.raises(InvalidWorkload):
        Workload.lengths(bad, 10)
    with pytest.raises(InvalidTarget):
        Slo(percentile=100.0)
