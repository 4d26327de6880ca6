"""What the gateway exports: everything a client can feel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from afd_runtime.metrics.registry import Registry
from afd_unit.metrics import Owner


class GatewayMetrics:
    def __init__(self, *, deployment: str, model_id: str) -> None:
        self._registry = Registry(Owner.GATEWAY, {"deployment": deployment, "model_name": model_id})

    def answered(self, path: str, code: int) -> None:
        self._registry.count("afd_gateway_requests", path=path, code=str(code))

    def prompt(self, tokens: int) -> None:
        self._registry.count("afd_prompt_tokens", tokens)

    def answer(self, received_s: float, clock: Callable[[], float]) -> RequestTimes:
        """One answer of a request that was received at `received_s` of `clock`."""
        return RequestTimes(self._registry, clock, received_s)

    def exposition(self) -> bytes:
        return self._registry.exposition()


@dataclass
class RequestTimes:
    """The moments of one request, from received to its last token."""

    _registry: Registry
    _clock: Callable[[], float]
    received_s: float
    _first_s: float | None = field(default=None, init=False)
    _last_s: float = field(default=0.0, init=False)
    _tokens: int = field(default=0, init=False)

    def tokens(self, count: int) -> None:
        """Some answer tokens have come."""
        if not count:
            return
        now_s = self._clock()
        self._registry.count("afd_generation_tokens", count)
        if self._first_s is None:
            self._first_s = now_s
            self._registry.observe("afd_time_to_first_token_seconds", now_s - self.received_s)
            count_since, since_s = count - 1, now_s
        else:
            count_since, since_s = count, self._last_s
        for _ in range(count_since):
            self._registry.observe("afd_inter_token_latency_seconds", (now_s - since_s) / count_since)
        self._tokens += count
        self._last_s = now_s

    def finished(self, reason: str) -> None:
        """`stop` or `length`; `abort` when the client went away, `error` when it was told of one."""
        self._registry.count("afd_requests_finished", finished_reason=reason)
        if self._first_s is None or reason not in ("stop", "length"):
            return
        now_s = self._clock()
        self._registry.observe("afd_e2e_request_latency_seconds", now_s - self.received_s)
        if self._tokens > 1:
            self._registry.observe(
                "afd_request_time_per_output_token_seconds",
                (self._last_s - self._first_s) / (self._tokens - 1),
            )
