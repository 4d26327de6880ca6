"""How many requests fit: the HBM of one GPU, role by role.

    usable = HBM x KV fraction
    attention   usable - dense weights                    - boundary buffers   -> KV -> batch
    colocated   usable - dense weights - experts / EP     - exchange buffers   -> KV -> batch
    expert      usable - experts / EP  - boundary buffers >= 0                 (holds no request)

Buffers are sized once for the most tokens a step can route, because a resident kernel's addresses are
fixed (protocol: slots). The worst case on the expert side is that every token picks this rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_operator.planner.hardware import Hardware
from afd_operator.planner.identity import MOE_COMBINE_BYTES, MOE_DISPATCH_BYTES
from afd_operator.planner.model import ModelSpec

KV_FRACTION = 0.85
"""Share of HBM for weights, buffers and KV together: FastAFD's setting; engines default to 0.85-0.9."""

KV_ELEMENT_BYTES = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True)
class MemoryRules:
    """What a deployment chooses about memory."""

    kv_fraction: float = KV_FRACTION
    kv_dtype: str = "bf16"
    prefill_tokens: int = 8192
    """Most tokens a lane puts into one step: FastAFD's `--afd-max-batched-tokens`."""
    microbatches: int = 2

    @property
    def kv_element_bytes(self) -> float:
        return KV_ELEMENT_BYTES[self.kv_dtype]


def usable_bytes(hw: Hardware, rules: MemoryRules) -> float:
    return hw.hbm_bytes * rules.kv_fraction


def rank_copies(top_k: int, ranks: int) -> float:
    """Most copies of a token that leave for `ranks` expert GPUs: one per rank it chose."""
    return float(min(top_k, ranks))


def attention_buffers(model: ModelSpec, expert_ranks: int, rules: MemoryRules) -> float:
    """Slots for one step's dispatch and combine on an attention GPU: rank-major, every token full out."""
    rows = rules.prefill_tokens * rank_copies(model.top_k, expert_ranks)
    return rows * model.hidden * (MOE_DISPATCH_BYTES + MOE_COMBINE_BYTES)


def expert_buffers(model: ModelSpec, attention_gpus: int, rules: MemoryRules) -> float:
    """Slots on an expert GPU if every token of every lane chooses it: one row in, one row back."""
    rows = rules.prefill_tokens * attention_gpus
    return rows * model.hidden * (MOE_DISPATCH_BYTES + MOE_COMBINE_BYTES)


def attention_kv_bytes(model: ModelSpec, hw: Hardware, expert_ranks: int, rules: MemoryRules) -> float:
    """Bytes left for KV on a disaggregated attention GPU; negative when the dense weights do not fit."""
    return usable_bytes(hw, rules) - model.dense_bytes - attention_buffers(model, expert_ranks, rules)


def colocated_kv_bytes(model: ModelSpec, hw: Hardware, ep: int, rules: MemoryRules) -> float:
    """Bytes left for KV on a GPU that also holds 1/`ep` of the experts."""
    weights = model.dense_bytes + model.expert_bytes / ep
    return usable_bytes(hw, rules) - weights - attention_buffers(model, ep, rules)


def expert_free_bytes(
    model: ModelSpec, hw: Hardware, attention_gpus: int, expert_ranks: int, rules: MemoryRules
) -> float:
    """Bytes left on an expert GPU; negative when its share of the experts and the buffers do not fit."""
    return (
        usable_bytes(hw, rules)
        - model.expert_bytes / expert_ranks
        - expert_buffers(model, attention_gpus, rules)
    )


def batch_that_fits(model: ModelSpec, kv_bytes: float, context_tokens: float, rules: MemoryRules) -> int:
    """Requests of `context_tokens` mean context that `kv_bytes` hold; 0 when none does."""
    per_request = model.kv_bytes(context_tokens, rules.kv_element_bytes)
    return max(0, int(kv_bytes // per_request))
