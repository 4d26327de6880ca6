"""Request bodies of `/v1/completions` and `/v1/chat/completions`, by type. What the values mean, and
which of them this server serves, is `asked`'s business; fields that are not named here are ignored.

`top_k` and `ignore_eos` are the extensions that vLLM and SGLang have as well.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from afd_runtime.server.errors import invalid


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    type: str = "text"


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What both endpoints share."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | int | None = None


class CompletionBody(Body, frozen=True, kw_only=True):
    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class TextPart(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None


class ChatBody(Body, frozen=True, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    response_format: ResponseFormat | None = None


B = TypeVar("B", bound=Body)

_completion = msgspec.json.Decoder(CompletionBody)
_chat = msgspec.json.Decoder(ChatBody)
_PATH = re.compile(r" - at `\$\.?([A-Za-z_]+)?.*`$")
_MISSING = re.compile(r"missing required field `(\w+)`")


def completion(body: bytes) -> CompletionBody:
    """Raises ApiError."""
    return _decode(_completion, body)


def chat(body: bytes) -> ChatBody:
    """Raises ApiError."""
    return _decode(_chat, body)


def _decode(decoder: msgspec.json.Decoder[B], body: bytes) -> B:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text = str(error)
        path, missing = _PATH.search(text), _MISSING.search(text)
        param = (missing and missing.group(1)) or (path and path.group(1))
        raise invalid(param, text) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(None, f"the body is not JSON: {error}") from error
