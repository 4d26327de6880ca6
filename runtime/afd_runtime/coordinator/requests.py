"""One request inside the unit: what is certain, what was issued, what remains.

    tokens     p p p p p | a a            prompt, then committed answer tokens: only ever grows
    computed   ------->                   positions whose KV is committed on the lane
    issued     ------------->             positions that steps out now will compute (<= lead ahead)
    prefill_end          ^                where the prefill of this attempt ends and decode begins

Running position `issued` yields the token of position `issued + 1`. An abort sets `issued` back to
`computed`; the loss of the lane sets both to 0, raises `attempt`, and all of `tokens` is prefilled.
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_runtime.coordinator.members import Peer
from afd_runtime.protocol.messages import Submit
from afd_runtime.protocol.plan import Phase, Sampling, SequenceWork


@dataclass(eq=False)
class Request:
    """Identity is the object: a replacement under the same id is another request."""

    id: str
    gateway: Peer
    arrival: int
    """Order of admission; replays keep theirs and so go before later ones."""
    prompt_tokens: int
    tokens: list[int]
    max_new_tokens: int
    sampling: Sampling
    stops: frozenset[int]
    """Tokens that end it, those of the checkpoint included unless they are to be ignored."""
    attempt: int
    lane: int | None = None
    computed: int = 0
    issued: int = 0
    prefill_end: int = 0
    last_step: int = 0
    strikes: int = 0
    """Steps with it that ended in a fault or a loss, since the last that was committed."""
    done: bool = False

    @classmethod
    def admitted(cls, submit: Submit, *, gateway: Peer, arrival: int, eos: list[int]) -> Request:
        tokens = [*submit.prompt, *submit.committed]
        ends = submit.stop_token_ids if submit.ignore_eos else [*submit.stop_token_ids, *eos]
        return cls(
            id=submit.request_id,
            gateway=gateway,
            arrival=arrival,
            prompt_tokens=len(submit.prompt),
            tokens=tokens,
            max_new_tokens=submit.max_new_tokens,
            sampling=submit.sampling,
            stops=frozenset(ends),
            attempt=submit.attempt,
            prefill_end=len(tokens),
        )

    @property
    def reserve(self) -> int:
        """Positions that it may ever take."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def answered(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def begun(self) -> bool:
        """Whether a step that names it was issued in this attempt."""
        return self.issued > 0

    def finish_reason(self) -> str | None:
        """By the committed tokens alone."""
        if self.answered and self.tokens[-1] in self.stops:
            return "stop"
        return "length" if self.answered >= self.max_new_tokens else None

    def phase(self) -> Phase | None:
        """What it needs next; None when enough is out and the results must tell."""
        if self.issued < self.prefill_end:
            return Phase.PREFILL
        return Phase.DECODE if self.issued + 1 < self.reserve else None

    def work(self, room: int) -> SequenceWork:
        """Its next piece of at most `room` rows; `took` then says that it was issued."""
        first = not self.begun
        if self.phase() is Phase.DECODE:
            count, tokens, sample = 1, None, True
        else:
            count = min(room, self.prefill_end - self.issued)
            tokens = self.tokens[self.issued : self.issued + count]
            sample = self.issued + count == self.prefill_end
        return SequenceWork(
            request_id=self.id,
            attempt=self.attempt,
            start=self.issued,
            count=count,
            sample=sample,
            tokens=tokens,
            reserve=self.reserve if first else 0,
            sampling=self.sampling if first else None,
        )

    def took(self, work: SequenceWork, step: int) -> None:
        self.issued = work.start + work.count
        self.last_step = step

    def roll_back(self) -> None:
        """Steps that were out did not happen."""
        self.issued = self.computed

    def restart(self) -> None:
        """Its lane is gone, or never began it for certain: all its tokens are prefilled elsewhere."""
        self.attempt += 1
        self.lane = None
        self.computed = self.issued = 0
        self.prefill_end = len(self.tokens)
