"""One HTTP request's answers: prompts x n generations, as text, in the order in which they come."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from afd_runtime.metrics.gateway import RequestTimes
from afd_runtime.server.asked import Asked
from afd_runtime.server.detokenise import Detokeniser
from afd_runtime.server.ownership import Owned
from afd_runtime.server.stop import StopFinder
from afd_runtime.server.tokenizer import Tokenizer
from afd_runtime.server.units import Units


@dataclass(frozen=True)
class Piece:
    """Some settled text of one answer; the last piece of an answer carries the reason."""

    index: int
    text: str
    tokens: int
    """Answer tokens behind this piece, those without text included."""
    finish_reason: str | None = None


@dataclass(frozen=True)
class Generation:
    """One answer to be made."""

    index: int
    prompt: list[int]
    max_tokens: int


async def pieces(
    generation: Generation, asked: Asked, *, units: Units, tokenizer: Tokenizer, times: RequestTimes
) -> AsyncGenerator[Piece, None]:
    """The text of one answer. Closing the iterator cancels it. Raises ApiError."""
    owned = Owned(
        request_id=secrets.token_hex(12),
        prompt=generation.prompt,
        sampling=asked.choice(generation.index),
        max_new_tokens=generation.max_tokens,
        ignore_eos=asked.ignore_eos,
    )
    text, stop = Detokeniser(tokenizer.decode), StopFinder(asked.stops)
    finished = "error"
    try:
        async with aclosing(units.generate(owned)) as steps:
            async for step in steps:
                times.tokens(len(step.tokens))
                # The token that ended the answer is a sign, not text.
                told = step.tokens[:-1] if step.finish_reason == "stop" else step.tokens
                piece = stop.push(text.push(told))
                if step.finish_reason is not None:
                    piece += stop.push(text.finish())
                    piece += stop.finish()
                reason = "stop" if stop.found else step.finish_reason
                if piece or reason or step.tokens:
                    yield Piece(generation.index, piece, len(step.tokens), reason)
                if reason is not None:
                    finished = reason
                    return
    except (asyncio.CancelledError, GeneratorExit):
        finished = "abort"
        raise
    finally:
        times.finished(finished)


async def merged(answers: list[AsyncGenerator[Piece, None]]) -> AsyncGenerator[Piece, None]:
    """The pieces of several answers as they come. The first error ends them all."""
    news: asyncio.Queue[Piece | Exception | None] = asyncio.Queue()

    async def follow(answer: AsyncGenerator[Piece, None]) -> None:
        try:
            async for piece in answer:
                news.put_nowait(piece)
        # Whatever it is, it belongs to whoever awaits the pieces.
        except Exception as error:
            news.put_nowait(error)
        news.put_nowait(None)

    tasks = [asyncio.create_task(follow(answer)) for answer in answers]
    try:
        open_answers = len(tasks)
        while open_answers:
            piece = await news.get()
            if piece is None:
                open_answers -= 1
            elif isinstance(piece, Exception):
                raise piece
            else:
                yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
