"""A request as its gateway owns it: what was asked, what the client has been given, which attempt.

    submit     -> attempt n, with the answer's tokens so far: they are prefilled, not sampled again
    accept     <- committed tokens; what the client has already is skipped, a gap is noticed
    (the coordinator is lost, or tokens are missing)  ->  submit again, attempt higher than any seen

Invariant: `answer` only grows, by one token at each index, whatever is lost or repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from afd_runtime.protocol.messages import Submit, Tokens
from afd_runtime.protocol.plan import Sampling


class MissingTokensError(Exception):
    """Committed tokens were lost on the way: the request must be submitted again."""


@dataclass
class Owned:
    request_id: str
    prompt: list[int]
    sampling: Sampling
    max_new_tokens: int
    ignore_eos: bool = False
    answer: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    attempt: int = -1
    """Of the last submission; answers to earlier ones are not listened to."""
    _seen: int = -1
    """The highest attempt that a coordinator has mentioned: it counts replays on its own."""

    def submit(self) -> Submit:
        self.attempt = self._seen = max(self.attempt, self._seen) + 1
        return Submit(
            request_id=self.request_id,
            attempt=self.attempt,
            prompt=self.prompt,
            sampling=self.sampling,
            max_new_tokens=self.max_new_tokens,
            committed=list(self.answer),
            ignore_eos=self.ignore_eos,
        )

    def accept(self, tokens: Tokens) -> list[int]:
        """The tokens that are new to the client. Raises MissingTokensError."""
        if tokens.attempt < self.attempt or self.finish_reason is not None:
            return []
        self._seen = max(self._seen, tokens.attempt)
        if tokens.first > len(self.answer):
            raise MissingTokensError(
                f"{self.request_id}: token {len(self.answer)} awaited, {tokens.first} came"
            )
        new = tokens.tokens[len(self.answer) - tokens.first :]
        self.answer += new
        self.finish_reason = tokens.finish_reason
        return new
