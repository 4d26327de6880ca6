"""The control messages, grouped by who says them. Every message is one frame of one tagged union.

A message of another epoch or incarnation than the receiver's is dropped and counted, never acted
on. The four moves of every membership change (protocol: one answer to every loss):

    Abort  ->  Table (next epoch)  ->  replay, as ordinary StepPlans  ->  resume
"""

from __future__ import annotations

import msgspec

from afd_runtime.protocol.plan import ExpertStep, Sampling, StepPlan
from afd_unit.identity import Member

# --- worker -> coordinator -------------------------------------------------------------------


class LaneCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane can hold; the coordinator admits by it."""

    kv_pages: int
    page_tokens: int
    table_slots: int
    """Most requests resident at once."""
    max_rows: int
    """Most rows of one microbatch: the data plane's buffers are sized for it."""
    eos_token_ids: list[int]
    vocab_size: int


class Held(msgspec.Struct, frozen=True):
    """A request that a lane holds KV for."""

    request_id: str
    attempt: int
    length: int
    """Tokens whose KV is written."""


class Register(msgspec.Struct, frozen=True, kw_only=True, tag="register"):
    """The first message of a worker's connection, and again after it lost the coordinator."""

    member: Member
    incarnation: int
    credential: str
    checkpoint: str
    """Digest of the checkpoint's config: members of a unit must agree."""
    data_address: str | None = None
    """Expert workers: `host:port` where lanes connect."""
    capacity: LaneCapacity | None = None
    """Lanes."""
    epoch: int = 0
    """Highest epoch this incarnation has been in."""
    committed_step: int = 0
    held: list[Held] = []


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    incarnation: int
    epoch: int


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One party's clock over one step, in microseconds, summed over layers and microbatches."""

    compute_us: float
    """Lane: sum of T_a. Expert worker: sum of T_e."""
    transfer_us: float = 0.0
    """Lane: sum of T_c over both directions, as far as it did not wait for compute."""
    dispatch_us: float = 0.0
    """Lane: the part of `transfer_us` that went into dispatch; the rest is combine."""
    waited_us: float = 0.0
    """Lane: waiting for experts beyond its own work (exposed FFN). Expert: waiting for lanes."""
    step_us: float = 0.0
    rounds: int = 0
    """layers x microbatches"""
    rows: int = 0
    """Expert worker: routed token rows."""


class Sampled(msgspec.Struct, frozen=True):
    request_id: str
    attempt: int
    position: int
    """Index of the new token in prompt + answer."""
    token: int


class LaneResult(msgspec.Struct, frozen=True, kw_only=True, tag="lane-result"):
    epoch: int
    step: int
    incarnation: int
    sampled: list[Sampled]
    free_pages: int
    free_slots: int
    times: StepTimes
    sent_ns: int = 0
    """Echo of the plan's, so that control latency is measured on the coordinator's clock."""


class ExpertResult(msgspec.Struct, frozen=True, kw_only=True, tag="expert-result"):
    epoch: int
    step: int
    incarnation: int
    times: StepTimes
    sent_ns: int = 0


class Fault(msgspec.Struct, frozen=True, kw_only=True, tag="fault"):
    """A worker could not finish a step of `epoch`: a peer is gone, or sent what it must not."""

    epoch: int
    step: int
    incarnation: int
    peer: Member | None
    text: str


# --- coordinator -> worker -------------------------------------------------------------------


class MemberEntry(msgspec.Struct, frozen=True, kw_only=True):
    member: Member
    incarnation: int
    data_address: str | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True, tag="table"):
    """The member table of an epoch. A worker that is not in it waits; it does not act.

    `data_key` is the epoch's secret of the data plane, told to registered members only. Expert e
    lives on expert worker `e // ceil(E / workers)`: contiguous, by the count of the unit file."""

    epoch: int
    members: list[MemberEntry]
    data_key: bytes
    committed_step: int


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag="abort"):
    """Steps after `committed_step` did not happen; open rounds are dropped, slots cleared."""

    epoch: int
    committed_step: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The answer to a Register that cannot be admitted; the worker logs it and tries again later."""

    reason: str


# --- gateway <-> coordinator -----------------------------------------------------------------


class GatewayHello(msgspec.Struct, frozen=True, kw_only=True, tag="gateway-hello"):
    name: str
    incarnation: int
    credential: str


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """Coordinator -> gateway: in answer to the hello, and again whenever `serving` changes."""

    epoch: int
    model_id: str
    context_length: int
    serving: bool
    incarnation: int
    """Of the coordinator: a new one means that submitted requests are unknown to it."""
    capacity_tokens: int
    """Most tokens (prompt + answer) that one request may ever take."""


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """The gateway owns the request. On replay `attempt` is one higher and `committed` holds the
    answer's tokens so far: they are prefilled, not sampled again."""

    request_id: str
    attempt: int
    prompt: list[int]
    sampling: Sampling
    max_new_tokens: int
    committed: list[int] = []
    ignore_eos: bool = False
    stop_token_ids: list[int] = []


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    request_id: str


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected"):
    """The request will not run. `retry_after_s` is set when trying again later can help."""

    request_id: str
    attempt: int
    reason: str
    """queue_full | too_long | invalid | failed: each step that ran it ended in a fault or a loss"""
    text: str
    retry_after_s: float | None = None


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """Committed tokens, in order, once: `first` is the index of tokens[0] in the answer."""

    request_id: str
    attempt: int
    first: int
    tokens: list[int]
    finish_reason: str | None = None
    """stop | length; the last message of a request carries it."""


FromWorker = Register | Heartbeat | LaneResult | ExpertResult | Fault
FromGateway = GatewayHello | Submit | Cancel
ToCoordinator = FromWorker | FromGateway
ToWorker = Table | Abort | Refused | StepPlan | ExpertStep
ToGateway = Welcome | Rejected | Tokens | Refused
