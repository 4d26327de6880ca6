"""A coordinator and gateways with real sockets on this machine, and simulated workers that connect
to them as real ones do. What the workers do not model: see `tests.unit.coordinator.world`; they
answer every plan at once, or after `delay_s`.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import openai
import zmq
import zmq.asyncio
from aiohttp import web
from tests.unit.coordinator.world import SimExpert, SimLane, SimWorker, answer, capacity, unit_file
from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, pre_tokenizers, trainers

from afd_runtime import control
from afd_runtime.auth.secret import SecretJudge
from afd_runtime.coordinator.core import Coordinator
from afd_runtime.coordinator.http import application
from afd_runtime.coordinator.shell import Shell
from afd_runtime.metrics.coordinator import CoordinatorMetrics
from afd_runtime.metrics.gateway import GatewayMetrics
from afd_runtime.protocol import codec
from afd_runtime.protocol.messages import Heartbeat, Refused, Table
from afd_runtime.server.defaults import Defaults
from afd_runtime.server.http import Gateway
from afd_runtime.server.template import PLAIN, ChatTemplate
from afd_runtime.server.tokenizer import Tokenizer
from afd_runtime.server.units import Units
from afd_unit.identity import Member, Role

CONTEXT = 256
SECRET = "a secret of the test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges beyond a few: almost every token is one byte, so characters that
    take several are split all the time. Token 0 is the end of an answer."""
    encoder = Encoder(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=264,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    encoder.train_from_iterator(["the the that then"], trainer)
    return Tokenizer(encoder, ChatTemplate(PLAIN, {}))


class LocalUnit:
    """One unit and one gateway. `async with LocalUnit(...) as unit:` has them serving."""

    def __init__(self, folder: Path, *, attention: int = 2, expert: int = 1, delay_s: float = 0.0) -> None:
        self.file = unit_file(attention=attention, expert=expert, context=CONTEXT)
        self.tokenizer = byte_tokenizer()
        self.capacity = capacity(pages=128, page_tokens=4, slots=16, rows=64, vocab=self.tokenizer.vocab_size)
        self.delay_s = delay_s
        self.credential = folder / "secret"
        self.credential.write_text(SECRET)
        self.control_port, self.http_port, self.port = free_port(), free_port(), free_port()
        self.coordinators = [f"127.0.0.1:{self.control_port}"]
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.workers: dict[Member, SimWorker] = {}
        self.core: Coordinator | None = None
        self._runners: dict[str, web.AppRunner] = {}
        self._shell: Shell | None = None

    async def __aenter__(self) -> LocalUnit:
        await self.start()
        await self.start_gateway()
        await self.until(lambda: self.units.serving)
        return self

    async def start(self) -> None:
        """Everything but a gateway."""
        await self.start_coordinator()
        for place in self.places:
            self.start_worker(place)

    async def __aexit__(self, *_: object) -> None:
        for name in list(self._runners):
            await self._runners.pop(name).cleanup()
        for name in list(self.tasks):
            await self._end(name)
        if self._shell is not None:
            self._shell.close()

    @property
    def places(self) -> tuple[Member, ...]:
        assert self.core is not None
        return self.core.members.places

    # --- the parts

    async def start_coordinator(self) -> None:
        judge, metrics = SecretJudge(SECRET), CoordinatorMetrics(self.file)
        self.core = Coordinator(
            self.file, incarnation=secrets.randbits(63), new_key=lambda: b"k", observer=metrics
        )
        self._shell = await self._bound(judge, metrics)
        await self._listen("coordinator", application(self.core, judge, metrics), self.http_port)
        self.tasks["coordinator"] = asyncio.create_task(self._shell.run())

    async def _bound(self, judge: SecretJudge, metrics: CoordinatorMetrics) -> Shell:
        """ZeroMQ closes sockets behind our back: the port is free a moment later."""
        assert self.core is not None
        while True:
            try:
                return Shell(self.core, judge, metrics, address=f"tcp://127.0.0.1:{self.control_port}")
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
                await asyncio.sleep(0.01)

    async def kill_coordinator(self) -> None:
        await self._end("coordinator")
        await self._runners.pop("coordinator").cleanup()
        assert self._shell is not None
        self._shell.close()

    async def start_gateway(self) -> None:
        self.units = Units(
            self.coordinators,
            model_id="sim",
            name="gateway-of-test",
            credential=str(self.credential),
        )
        self.metrics = GatewayMetrics(deployment="local/sim", model_id="sim")
        gateway = Gateway(
            model_id="sim",
            context_length=CONTEXT,
            tokenizer=self.tokenizer,
            defaults=Defaults(),
            units=self.units,
            metrics=self.metrics,
            created=1,
        )
        await self._listen("gateway", gateway.application(), self.port)
        self.tasks["gateway"] = asyncio.create_task(self.units.run())

    def start_worker(self, member: Member) -> None:
        number = secrets.randbits(63)
        self.workers[member] = (
            SimExpert(member, number)
            if member.role is Role.EXPERT
            else SimLane(member, number, self.capacity)
        )
        self.tasks[str(member)] = asyncio.create_task(self._work(self.workers[member]))

    async def kill_worker(self, member: Member) -> None:
        await self._end(str(member))

    async def _end(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _listen(self, name: str, app: web.Application, port: int) -> None:
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        self._runners[name] = runner

    async def _work(self, worker: SimWorker) -> None:
        dealer = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        control.bounded(zmq.Socket.shadow(dealer))
        dealer.connect(f"tcp://127.0.0.1:{self.control_port}")
        beat = asyncio.create_task(self._beat(worker, dealer))
        try:
            await self._register(worker, dealer)
            while True:
                message = codec.decode_at_worker(await dealer.recv())
                if isinstance(message, Refused):
                    await asyncio.sleep(0.1)
                    await self._register(worker, dealer)
                if isinstance(message, Table) and message.epoch <= worker.epoch:
                    # An introduction made before the last coordinator's table was read.
                    await self._register(worker, dealer)
                    continue
                reply = worker.hear(message)
                if reply is not None:
                    await asyncio.sleep(self.delay_s)
                    await dealer.send(codec.encode(reply))
        finally:
            beat.cancel()
            dealer.close(linger=0)

    async def _register(self, worker: SimWorker, dealer: zmq.asyncio.Socket) -> None:
        register = msgspec.structs.replace(worker.register(), credential=SECRET)
        await dealer.send(codec.encode(register))

    async def _beat(self, worker: SimWorker, dealer: zmq.asyncio.Socket) -> None:
        while True:
            await asyncio.sleep(0.5)
            await dealer.send(codec.encode(Heartbeat(incarnation=worker.incarnation, epoch=worker.epoch)))

    # --- what tests ask

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0, **options
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer_tokens(
        self, prompt: list[int], seed: int, most: int, *, ignore_eos: bool = False
    ) -> list[int]:
        return answer(prompt, seed, most, ignore_eos=ignore_eos, vocab=self.tokenizer.vocab_size)

    def text(self, prompt: list[int], seed: int, most: int, *, ignore_eos: bool = False) -> str:
        """What the model answers, as text."""
        tokens = self.answer_tokens(prompt, seed, most, ignore_eos=ignore_eos)
        return self.tokenizer.decode(tokens)

    @staticmethod
    async def until(condition: Any, timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the awaited condition never came"
            await asyncio.sleep(0.01)
