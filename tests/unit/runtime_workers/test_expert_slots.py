"""Which round an expert worker takes next."""

from __future__ import annotations

import torch

from afd_runtime.protocol.plan import Phase
from afd_runtime.transport.expert_slots import ExpertSlots
from afd_runtime.transport.round import Round, WireFormat

WIRE = WireFormat(hidden=4, top_k=1, max_rows=2, dtype=torch.float32)


def order(*rounds: Round) -> list[Round]:
    """Deliver the rounds, then take them all."""
    slots = ExpertSlots(WIRE, 1, [0], timeout_s=60)
    for round in rounds:
        slots.landing(0, round, 0)
        slots.delivered(0, round)
    taken = [slots.next(0) for _ in rounds]
    return [arrived.round for arrived in taken if arrived is not None]


def test_decode_goes_before_prefill_where_both_wait() -> None:
    prefill, decode = Round(1, Phase.PREFILL, 3, 0, 0), Round(1, Phase.DECODE, 4, 2, 1)
    assert order(prefill, decode) == [decode, prefill]


def test_within_a_phase_lanes_are_served_in_the_order_they_wait() -> None:
    """By step, then layer, then microbatch: the one that the lanes pull first."""
    wait = [Round(1, Phase.DECODE, 3, 5, 1), Round(1, Phase.DECODE, 3, 6, 0), Round(1, Phase.DECODE, 4, 0, 2)]
    assert order(*reversed(wait)) == wait
