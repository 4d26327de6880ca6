"""Response bodies of both endpoints, whole and streamed.

A stream is a list of events: for chat first the role, then text, then the reason; then, if asked
for, usage without choices; then `[DONE]`.
Shapes: https://platform.openai.com/docs/api-reference/chat, .../completions
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from afd_runtime.server.choices import Piece

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"


def event(body: Json) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass
class Usage:
    prompt_tokens: int
    completion_tokens: int = 0

    def body(self) -> Json:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass
class Answer:
    """The response of one request, being made. `chat` says in which of the two dialects."""

    id: str
    created: int
    model: str
    chat: bool
    usage: Usage
    choices: int
    _texts: dict[int, str] = field(default_factory=dict)
    _reasons: dict[int, str] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        self.usage.completion_tokens += piece.tokens
        self._texts[piece.index] = self._texts.get(piece.index, "") + piece.text
        if piece.finish_reason is not None:
            self._reasons[piece.index] = piece.finish_reason

    # --- whole

    def whole(self) -> Json:
        kind = "chat.completion" if self.chat else "text_completion"
        choices = [self._whole_choice(index) for index in range(self.choices)]
        return {**self._head(kind), "choices": choices, "usage": self.usage.body()}

    def _whole_choice(self, index: int) -> Json:
        text = self._texts[index]
        said: Json = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self.chat
            else {"text": text}
        )
        return {"index": index, **said, "logprobs": None, "finish_reason": self._reasons[index]}

    # --- streamed

    def opening(self, *, include_usage: bool) -> list[Json]:
        """Before any text: who speaks, in each choice. Completions begin with text."""
        if not self.chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [self._chunk(index, {"delta": delta}, None, include_usage) for index in range(self.choices)]

    def chunk(self, piece: Piece, *, include_usage: bool) -> Json:
        said: Json = {"text": piece.text}
        if self.chat:
            said = {"delta": {"content": piece.text} if piece.text else {}}
        return self._chunk(piece.index, said, piece.finish_reason, include_usage)

    def closing(self) -> Json:
        """Usage, for those who asked for it."""
        return {**self._head(self._chunk_kind), "choices": [], "usage": self.usage.body()}

    def _chunk(self, index: int, said: Json, reason: str | None, include_usage: bool) -> Json:
        choice = {"index": index, **said, "logprobs": None, "finish_reason": reason}
        usage: Json = {"usage": None} if include_usage else {}
        return {**self._head(self._chunk_kind), "choices": [choice], **usage}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def model_list(model_id: str, created: int) -> Json:
    return {"object": "list", "data": [model(model_id, created)]}


def model(model_id: str, created: int) -> Json:
    return {"id": model_id, "object": "model", "created": created, "owned_by": "afd"}
