"""What a request asks for: bodies validated into `Asked`, prompts and conversations.

What OpenAI's API has and this server does not do is refused by name as soon as it asks for
something, never ignored; fields without influence on the answer (`user`, `metadata`) are ignored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from afd_runtime.protocol.plan import MAX_SEED, Sampling
from afd_runtime.server.bodies import Body, ChatBody, CompletionBody, Message
from afd_runtime.server.defaults import Defaults
from afd_runtime.server.errors import invalid

MAX_CHOICES = 64
"""Answers of one HTTP request: prompts x n."""
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default of `max_tokens` for /v1/completions; chat goes on to the end of the context."""

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Asked:
    """How answers are to be made, apart from the prompt."""

    sampling: Sampling
    max_tokens: int | None
    stops: tuple[str, ...]
    n: int
    stream: bool
    include_usage: bool
    ignore_eos: bool

    def choice(self, number: int) -> Sampling:
        """Sampling of the answer `number`: each has a seed of its own, the same for the same request."""
        return msgspec.structs.replace(self.sampling, seed=(self.sampling.seed + number) & MAX_SEED)


def _is_given(value: Any) -> bool:
    return value is not None and value is not False


UNSUPPORTED: dict[str, Callable[[Any], bool]] = {
    "presence_penalty": bool,
    "frequency_penalty": bool,
    "logit_bias": bool,
    "logprobs": _is_given,
    "top_logprobs": bool,
    "echo": bool,
    "suffix": bool,
    "tools": bool,
    "tool_choice": lambda value: value not in (None, "none", "auto"),
    "functions": bool,
    "response_format": lambda value: value is not None and value.type != "text",
}
"""What asks for something that this server does not do, by the field's value."""


def _refuse_unsupported(body: Body) -> None:
    for name, asks in UNSUPPORTED.items():
        if asks(getattr(body, name, None)):
            raise invalid(name, f"{name} is not supported by this server")
    if isinstance(body, CompletionBody) and body.best_of not in (None, body.n or 1):
        raise invalid("best_of", "best_of is not supported by this server")


def asked(body: Body, defaults: Defaults) -> Asked:
    """Raises ApiError naming the parameter."""
    _refuse_unsupported(body)
    n = _within("n", body.n, 1, MAX_CHOICES, default=1)
    top_k = defaults.top_k if body.top_k is None else body.top_k
    if top_k == -1:
        top_k = 0  # vLLM's word for the whole vocabulary
    temperature = _within("temperature", body.temperature, 0.0, 2.0, default=defaults.temperature)
    if body.top_p is not None and not 0 < body.top_p <= 1:
        raise invalid("top_p", f"top_p is {body.top_p}, must be above 0 and at most 1")
    if top_k < 0:
        raise invalid("top_k", f"top_k is {top_k}, must be -1, 0 or more")
    seed = secrets.randbits(63) if body.seed is None else body.seed & MAX_SEED
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "stream_options is only allowed when stream is true")
    return Asked(
        sampling=Sampling(
            temperature=temperature,
            top_p=defaults.top_p if body.top_p is None else body.top_p,
            top_k=top_k,
            seed=seed,
        ),
        max_tokens=_max_tokens(body),
        stops=_stops(body.stop),
        n=n,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        ignore_eos=bool(body.ignore_eos),
    )


def _max_tokens(body: Body) -> int | None:
    name, most = "max_tokens", body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        name, most = "max_completion_tokens", body.max_completion_tokens
    if isinstance(body, CompletionBody) and most is None:
        most = DEFAULT_COMPLETION_TOKENS
    if most is not None and most < 1:
        raise invalid(name, f"{name} is {most}, must be at least 1")
    return most


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else list(stop or [])
    if len(stops) > MAX_STOPS:
        raise invalid("stop", f"{len(stops)} stop strings, at most {MAX_STOPS}")
    if any(not 1 <= len(text) <= MAX_STOP_CHARACTERS for text in stops):
        raise invalid("stop", f"a stop string must have 1 to {MAX_STOP_CHARACTERS} characters")
    return tuple(stops)


def _within(name: str, value: N | None, low: N, high: N, *, default: N) -> N:
    if value is None:
        return default
    if not low <= value <= high:
        raise invalid(name, f"{name} is {value}, must be within {low}..{high}")
    return value


def prompts(body: CompletionBody) -> list[str | list[int]]:
    """One prompt or many, each as text or as tokens. Raises ApiError."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise invalid("prompt", "prompt is empty")
    if all(isinstance(part, int) for part in prompt):
        return [[part for part in prompt if isinstance(part, int)]]
    if all(isinstance(part, str) for part in prompt) or all(isinstance(part, list) for part in prompt):
        return [part for part in prompt if not isinstance(part, int)]
    raise invalid("prompt", "prompt mixes text and tokens: give one string, or a list of one kind")


def conversation(body: ChatBody) -> list[dict[str, str]]:
    """Messages as templates want them. Raises ApiError."""
    if not body.messages:
        raise invalid("messages", "messages is empty")
    return [_said(number, message) for number, message in enumerate(body.messages)]


ROLES = ("system", "developer", "user", "assistant")


def _said(number: int, message: Message) -> dict[str, str]:
    where = f"messages[{number}]"
    if message.role not in ROLES:
        raise invalid(f"{where}.role", f"{where}.role is {message.role!r}, must be one of {', '.join(ROLES)}")
    content = message.content
    if isinstance(content, list):
        if any(part.type != "text" or part.text is None for part in content):
            raise invalid(f"{where}.content", f"{where}.content has a part that is not text")
        content = "".join(part.text or "" for part in content)
    if content is None:
        raise invalid(f"{where}.content", f"{where}.content is missing")
    # `developer` is what newer models call `system`; templates know the older name.
    return {"role": "system" if message.role == "developer" else message.role, "content": content}
