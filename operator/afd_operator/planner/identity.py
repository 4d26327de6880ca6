"""The identities behind every answer: what disaggregation can gain, and why it may not.

Let a colocated GPU hold `B_v` requests and step in `T_v`. With M attention and N expert nodes, an
attention GPU holds `B_a` requests and the unit steps in `T_a`; expert GPUs hold none but are paid for.
Output per GPU then changes by

    S = B_a/B_v  x  M/(M+N)  x  T_v/T_a          batch expansion x FFN tax x latency ratio

The first two factors are fixed by memory and topology. With experts off the attention GPU the step is
`T_a = r T_fmha + m T_dense`, r = B_a/B_v: attention is bandwidth-bound and grows with the batch, the
small dense kernels repeat once per microbatch, and the MoE part is hidden.

Source of the identities, of the rule T_e <= T_a and of the golden rows in the tests: the FastAFD
article (Hao AI Lab, 2026-07-06), sections 9 to 14.
"""

from __future__ import annotations

from dataclasses import dataclass

MOE_DISPATCH_BYTES = 1
"""FP8 out to the experts, bytes per routed hidden element."""
MOE_COMBINE_BYTES = 2
"""BF16 back to attention, bytes per routed hidden element."""


@dataclass(frozen=True)
class StepShares:
    """How a colocated decode step divides, in any one unit of time: only the ratios count.

    `step` is the whole step. Published percentages are rounded and add up to 99.9 or 100.1; the step
    they divide is 100 all the same (`percent`).
    """

    fmha: float
    dense: float
    moe: float
    step: float

    def __post_init__(self) -> None:
        if (
            min(self.dense, self.moe) < 0
            or self.fmha <= 0
            or abs(self.fmha + self.dense + self.moe - self.step) > 0.01 * self.step
        ):
            raise ValueError(
                f"{self} is no decomposition of a step: positive parts that add up to it within 1 %"
            )

    @classmethod
    def percent(cls, fmha: float, dense: float, moe: float) -> StepShares:
        return cls(fmha, dense, moe, 100.0)


def batch_tax(attention_nodes: int, expert_nodes: int) -> float:
    """M/(M+N): the share of GPUs that hold requests."""
    return attention_nodes / (attention_nodes + expert_nodes)


def speedup(
    *, batch_expansion: float, attention_nodes: int, expert_nodes: int, latency_ratio: float
) -> float:
    """S, output per GPU relative to the colocated system (1 = no gain)."""
    return batch_expansion * batch_tax(attention_nodes, expert_nodes) * latency_ratio


def attention_time(shares: StepShares, *, batch_expansion: float, microbatches: int) -> float:
    """`r T_fmha + m T_dense`, in the unit of `shares`."""
    return batch_expansion * shares.fmha + microbatches * shares.dense


def speedup_from_shares(
    shares: StepShares, *, batch_expansion: float, attention_nodes: int, expert_nodes: int, microbatches: int
) -> float:
    """S predicted from a profile of the colocated step alone, the FFN hidden."""
    latency_ratio = shares.step / attention_time(
        shares, batch_expansion=batch_expansion, microbatches=microbatches
    )
    return speedup(
        batch_expansion=batch_expansion,
        attention_nodes=attention_nodes,
        expert_nodes=expert_nodes,
        latency_ratio=latency_ratio,
    )


def latency_ratio_implied(
    measured: float, *, batch_expansion: float, attention_nodes: int, expert_nodes: int
) -> float:
    """T_v/T_a that a measured speedup implies: what the runtime added beyond capacity and topology."""
    return measured / (batch_expansion * batch_tax(attention_nodes, expert_nodes))


def offload_bound_moe(shares: StepShares) -> float:
    """1/(1 - f_moe): MoE on other hardware, fully hidden and not paid for."""
    return shares.step / (shares.step - shares.moe)


def offload_bound_dense_and_moe(shares: StepShares) -> float:
    """1/f_fmha: everything but attention on other hardware, fully hidden and not paid for."""
    return shares.step / shares.fmha


def boundary_bytes(tokens: float, hidden: int, copies: float) -> tuple[float, float]:
    """Bytes (dispatch, combine) of one layer for `tokens` tokens sent in `copies` copies each."""
    elements = tokens * copies * hidden
    return MOE_DISPATCH_BYTES * elements, MOE_COMBINE_BYTES * elements


def is_hidden(t_attention: float, t_expert: float, *, margin: float) -> bool:
    """The placement rule: T_e <= (1 - margin) T_a. Slack is a bounded tax, exposure slows every request."""
    return t_expert <= (1.0 - margin) * t_attention
