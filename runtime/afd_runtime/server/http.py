"""The routes of the gateway, from bytes to bytes.

/v1/models  /v1/completions  /v1/chat/completions     OpenAI's API
/health     200 while the process lives
/ready      200 once a unit has served and while a coordinator is connected
/metrics    Prometheus text
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from aiohttp import web

from afd_runtime.metrics.gateway import GatewayMetrics
from afd_runtime.metrics.registry import CONTENT_TYPE
from afd_runtime.server import answers, asked, bodies, errors
from afd_runtime.server.answer_errors import answer_errors
from afd_runtime.server.answers import Answer, Usage
from afd_runtime.server.asked import Asked
from afd_runtime.server.choices import Generation, Piece, merged, pieces
from afd_runtime.server.defaults import Defaults
from afd_runtime.server.template import TemplateRefusedError
from afd_runtime.server.tokenizer import Tokenizer
from afd_runtime.server.units import Units

MAX_BODY_BYTES = 8 << 20
"""131,072 tokens as numbers with commas, and as much again."""


@dataclass
class Gateway:
    """What the handlers need."""

    model_id: str
    context_length: int
    tokenizer: Tokenizer
    defaults: Defaults
    units: Units
    metrics: GatewayMetrics
    created: int

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[answer_errors(self.metrics)])
        app.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model:.+}", self._model),
                web.get("/health", self._health),
                web.get("/ready", self._ready),
                web.get("/metrics", self._exposition),
            ]
        )
        return app

    # --- OpenAI's API

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        received_s = time.monotonic()
        body = bodies.completion(await request.read())
        self._known(body.model)
        wanted = asked.asked(body, self.defaults)
        prompts = [
            await self.tokenizer.prompt(prompt) if isinstance(prompt, str) else prompt
            for prompt in asked.prompts(body)
        ]
        return await self._serve(request, prompts, wanted, param="prompt", received_s=received_s)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        received_s = time.monotonic()
        body = bodies.chat(await request.read())
        self._known(body.model)
        wanted = asked.asked(body, self.defaults)
        try:
            prompt = await self.tokenizer.chat(asked.conversation(body))
        except TemplateRefusedError as error:
            raise errors.invalid("messages", str(error)) from error
        return await self._serve(request, [prompt], wanted, param="messages", received_s=received_s)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response(answers.model_list(self.model_id, self.created))

    async def _model(self, request: web.Request) -> web.Response:
        self._known(request.match_info["model"])
        return web.json_response(answers.model(self.model_id, self.created))

    def _known(self, model: str) -> None:
        if model != self.model_id:
            raise errors.no_model(model, self.model_id)

    async def _serve(
        self,
        request: web.Request,
        prompts: list[list[int]],
        wanted: Asked,
        *,
        param: str,
        received_s: float,
    ) -> web.StreamResponse:
        generations = self._generations(prompts, wanted, param)
        for prompt in prompts:
            self.metrics.prompt(len(prompt))
        chat = param == "messages"
        answer = Answer(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            created=int(time.time()),
            model=self.model_id,
            chat=chat,
            usage=Usage(sum(map(len, prompts))),
            choices=len(generations),
        )
        news = merged(
            [
                pieces(
                    generation,
                    wanted,
                    units=self.units,
                    tokenizer=self.tokenizer,
                    times=self.metrics.answer(received_s, time.monotonic),
                )
                for generation in generations
            ]
        )
        async with aclosing(news):
            if wanted.stream:
                return await self._stream(request, answer, news, include_usage=wanted.include_usage)
            async for piece in news:
                answer.add(piece)
            return web.json_response(answer.whole())

    def _generations(self, prompts: list[list[int]], wanted: Asked, param: str) -> list[Generation]:
        if len(prompts) * wanted.n > asked.MAX_CHOICES:
            raise errors.invalid(
                "n",
                f"{len(prompts)} prompts x {wanted.n} answers, at most {asked.MAX_CHOICES} answers a request",
            )
        most = min(self.context_length, self.units.capacity_tokens() or self.context_length)
        made: list[Generation] = []
        for prompt in prompts:
            if not prompt:
                raise errors.invalid(param, f"{param} has no tokens")
            wrong = next((token for token in prompt if not 0 <= token < self.tokenizer.vocab_size), None)
            if wrong is not None:
                raise errors.invalid(param, f"token {wrong} is not within 0..{self.tokenizer.vocab_size - 1}")
            max_tokens = wanted.max_tokens or max(1, most - len(prompt))
            if len(prompt) + max_tokens > most:
                raise errors.too_long(
                    param,
                    f"This model's maximum context length is {most} tokens. However, you requested "
                    f"{len(prompt) + max_tokens} tokens ({len(prompt)} in the {param}, {max_tokens} in the "
                    "completion).",
                )
            made += [Generation(len(made) + number, prompt, max_tokens) for number in range(wanted.n)]
        return made

    async def _stream(
        self,
        request: web.Request,
        answer: Answer,
        news: AsyncGenerator[Piece, None],
        *,
        include_usage: bool,
    ) -> web.StreamResponse:
        # Until the first piece an error can still have its own status code.
        first = await anext(news)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        for chunk in answer.opening(include_usage=include_usage):
            await response.write(answers.event(chunk))
        try:
            await self._write(response, answer, first, include_usage=include_usage)
            async for piece in news:
                await self._write(response, answer, piece, include_usage=include_usage)
        except errors.ApiError as error:
            await response.write(answers.event(error.body))
        else:
            if include_usage:
                await response.write(answers.event(answer.closing()))
        await response.write(answers.DONE)
        await response.write_eof()
        return response

    @staticmethod
    async def _write(
        response: web.StreamResponse, answer: Answer, piece: Piece, *, include_usage: bool
    ) -> None:
        answer.add(piece)
        if piece.text or piece.finish_reason:
            await response.write(answers.event(answer.chunk(piece, include_usage=include_usage)))

    # --- beside it

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        if self.units.ever_served and self.units.connected:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="no unit has served yet\n")

    async def _exposition(self, _: web.Request) -> web.Response:
        return web.Response(body=self.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})
