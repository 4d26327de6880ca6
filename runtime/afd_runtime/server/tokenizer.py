"""Prompt <-> tokens, by the checkpoint's tokenizer.json. Long texts are encoded off the event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import jinja2
from tokenizers import Tokenizer as Encoder

from afd_runtime.server import template
from afd_runtime.server.template import ChatTemplate

SHORT_CHARACTERS = 2000
"""Encoded in well under a millisecond: a thread would take longer."""


class TokenizerError(RuntimeError):
    """The checkpoint's tokenizer cannot be used; the message names the file."""


class Tokenizer:
    def __init__(self, encoder: Encoder, chat_template: ChatTemplate) -> None:
        self._encoder = encoder
        self._template = chat_template
        # Some checkpoints ship the truncation and padding of their training.
        encoder.no_truncation()
        encoder.no_padding()

    @property
    def vocab_size(self) -> int:
        return int(self._encoder.get_vocab_size(with_added_tokens=True))

    async def prompt(self, text: str) -> list[int]:
        """With the tokens that the model expects around a text (a first BOS, for example)."""
        return await self._encode(text, special=True)

    async def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Raises TemplateRefusedError. Templates write special tokens themselves."""
        text = await asyncio.to_thread(self._template.render, messages)
        return await self._encode(text, special=False)

    async def _encode(self, text: str, *, special: bool) -> list[int]:
        if len(text) <= SHORT_CHARACTERS:
            return list(self._encoder.encode(text, add_special_tokens=special).ids)
        encoding = await asyncio.to_thread(self._encoder.encode, text, add_special_tokens=special)
        return list(encoding.ids)

    def decode(self, tokens: list[int]) -> str:
        """Without special tokens. Incomplete UTF-8 reads as U+FFFD."""
        return str(self._encoder.decode(tokens, skip_special_tokens=True))


def load(folder: str | Path) -> Tokenizer:
    """Raises TokenizerError."""
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"{path} does not exist: a checkpoint needs its fast tokenizer to be served")
    try:
        return Tokenizer(Encoder.from_file(str(path)), template.load(Path(folder)))
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(f"{folder}: chat template, line {error.lineno}: {error}") from error
    # The bindings raise plain Exception for a file they do not understand.
    except Exception as error:
        raise TokenizerError(f"{path}: {error}") from error
