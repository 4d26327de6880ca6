"""A unit in one thread: the real coordinator core and the real gateway bookkeeping, with simulated
workers that speak the protocol over queues which the test delivers one message at a time.

What it does not model: the data plane (a step needs nothing of the expert workers), the time a step
takes, and sockets (a connection is a pair of queues that vanish together).

The model: a lane's next token is a hash of all tokens before it, so a wrong, missing or repeated
token changes everything after it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from dataclasses import dataclass, field

import msgspec

from afd_runtime.coordinator.core import Coordinator
from afd_runtime.coordinator.window import StepMeasured
from afd_runtime.protocol import codec
from afd_runtime.protocol.messages import (
    Abort,
    Cancel,
    ExpertResult,
    Fault,
    GatewayHello,
    Heartbeat,
    Held,
    LaneCapacity,
    LaneResult,
    Refused,
    Register,
    Rejected,
    Sampled,
    StepTimes,
    Submit,
    Table,
    Tokens,
    Welcome,
)
from afd_runtime.protocol.plan import ExpertStep, Phase, Sampling, StepPlan
from afd_runtime.server.ownership import MissingTokensError, Owned
from afd_unit.identity import Member, Role
from afd_unit.unitfile import Auth, AuthMode, Model, UnitFile

VOCAB = 64
EOS = 0
TIMES = StepTimes(
    compute_us=100.0, transfer_us=20.0, dispatch_us=8.0, waited_us=5.0, step_us=200.0, rounds=4, rows=3
)


def unit_file(*, attention: int = 2, expert: int = 1, microbatches: int = 2, context: int = 64) -> UnitFile:
    return UnitFile(
        deployment="local/sim",
        unit=0,
        model=Model(id="sim", path="/nowhere", context_length=context),
        attention_workers=attention,
        expert_workers=expert,
        gpus_per_node=1,
        microbatches=microbatches,
        coordinator="127.0.0.1:1",
        domain="local",
        auth=Auth(mode=AuthMode.SECRET, secret_file="/nowhere"),
    )


def capacity(
    *, pages: int = 12, page_tokens: int = 4, slots: int = 4, rows: int = 8, vocab: int = VOCAB
) -> LaneCapacity:
    return LaneCapacity(
        kv_pages=pages,
        page_tokens=page_tokens,
        table_slots=slots,
        max_rows=rows,
        eos_token_ids=[EOS],
        vocab_size=vocab,
    )


def next_token(tokens: list[int], seed: int, vocab: int = VOCAB) -> int:
    digest = hashlib.blake2b(repr((tokens, seed)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % vocab


def answer(
    prompt: list[int], seed: int, most: int, *, ignore_eos: bool = False, vocab: int = VOCAB
) -> list[int]:
    """What the model says, without any unit."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + most:
        tokens.append(next_token(tokens, seed, vocab))
        if tokens[-1] == EOS and not ignore_eos:
            break
    return tokens[len(prompt) :]


@dataclass
class Resident:
    attempt: int
    pages: int
    seed: int
    tokens: list[int]
    length: int = 0


class SimLane:
    """Checks everything a plan asks of a lane, and keeps pages as a lane does."""

    def __init__(self, member: Member, incarnation: int, capacity: LaneCapacity) -> None:
        self.member, self.incarnation, self.capacity = member, incarnation, capacity
        self.epoch = 0
        self.active = False
        self.resident: dict[str, Resident] = {}

    def register(self) -> Register:
        self.active = False
        return Register(
            member=self.member,
            incarnation=self.incarnation,
            credential="",
            checkpoint="c",
            capacity=self.capacity,
            epoch=self.epoch,
            held=[Held(name, kept.attempt, kept.length) for name, kept in self.resident.items()],
        )

    @property
    def free_pages(self) -> int:
        return self.capacity.kv_pages - sum(kept.pages for kept in self.resident.values())

    def hear(self, message: object) -> LaneResult | None:
        match message:
            case Table():
                mine = next(entry for entry in message.members if entry.member == self.member)
                assert mine.incarnation == self.incarnation, (
                    "a table names another incarnation for this place"
                )
                assert message.epoch > self.epoch, "epochs only go up"
                self.epoch, self.active = message.epoch, True
            case Abort() if message.epoch == self.epoch:
                self.active = False
            case Refused():
                self.active = False
            case StepPlan() if self.active and message.epoch == self.epoch:
                return self.run(message)
        return None

    def run(self, plan: StepPlan) -> LaneResult:
        for name, attempt in plan.free:
            kept = self.resident.get(name)
            if kept is not None and kept.attempt == attempt:
                del self.resident[name]
        sampled = []
        for work in (work for batch in plan.microbatches for work in batch):
            if work.sampling is not None:
                assert work.request_id not in self.resident, f"{work.request_id} begins twice"
                pages = -(-work.reserve // self.capacity.page_tokens)
                assert pages <= self.free_pages, f"{pages} pages asked of {self.free_pages}"
                assert len(self.resident) < self.capacity.table_slots, "no slot"
                self.resident[work.request_id] = Resident(work.attempt, pages, work.sampling.seed, [])
            kept = self.resident[work.request_id]
            assert kept.attempt == work.attempt, "work of an attempt that the lane does not hold"
            assert work.start <= kept.length, f"position {kept.length} was never computed"
            if work.tokens is None:
                assert work.start < len(kept.tokens), "the lane does not know the token to run"
                del kept.tokens[work.start + 1 :]
            else:
                kept.tokens[work.start :] = work.tokens
            kept.length = work.start + work.count
            assert kept.length <= kept.pages * self.capacity.page_tokens
            if work.sample:
                kept.tokens.append(next_token(kept.tokens, kept.seed, self.capacity.vocab_size))
                sampled.append(Sampled(work.request_id, work.attempt, kept.length, kept.tokens[-1]))
        return LaneResult(
            epoch=plan.epoch,
            step=plan.step,
            incarnation=self.incarnation,
            sampled=sampled,
            free_pages=self.free_pages,
            free_slots=self.capacity.table_slots - len(self.resident),
            times=TIMES,
            sent_ns=plan.sent_ns,
        )


class SimExpert:
    def __init__(self, member: Member, incarnation: int) -> None:
        self.member, self.incarnation = member, incarnation
        self.epoch = 0
        self.active = False

    def register(self) -> Register:
        self.active = False
        return Register(
            member=self.member,
            incarnation=self.incarnation,
            credential="",
            checkpoint="c",
            data_address="127.0.0.1:2",
            epoch=self.epoch,
        )

    def hear(self, message: object) -> ExpertResult | None:
        match message:
            case Table():
                assert message.epoch > self.epoch
                self.epoch, self.active = message.epoch, True
            case Abort() | Refused():
                self.active = False
            case ExpertStep() if self.active and message.epoch == self.epoch:
                return ExpertResult(
                    epoch=message.epoch, step=message.step, incarnation=self.incarnation, times=TIMES
                )
        return None


SimWorker = SimLane | SimExpert


@dataclass
class Connection:
    """Two queues of frames; both are lost with the connection."""

    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)


class Counts:
    """The core's observer: how often each thing happened."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.steps: list[StepMeasured] = []

    def step(self, step: StepMeasured) -> None:
        self.steps.append(step)

    def rejected(self, reason: str) -> None:
        self.of[f"rejected {reason}"] += 1

    def replayed(self, requests: int) -> None:
        self.of["replayed"] += requests

    def dropped(self, reason: str) -> None:
        self.of[f"dropped {reason}"] += 1


class World:
    """`unit(...)` in one line; `settle()` runs it to rest."""

    def __init__(self, *, attention: int = 2, expert: int = 1, lead: int = 2, **lane: int) -> None:
        self.now_s = 100.0
        self.lead = lead
        self.unit = unit_file(attention=attention, expert=expert)
        self.capacity = capacity(**lane)
        self.serial = 0
        self.counts = Counts()
        self.workers: dict[Member, SimWorker] = {}
        self.connections: dict[bytes, Connection] = {}
        self.of_worker: dict[Member, bytes] = {}
        self.refused: set[Member] = set()
        """Told that they are in no place; they register again when time has passed."""
        self.gateway_peer = b""
        self.owned: dict[str, Owned] = {}
        self.rejected: dict[str, Rejected] = {}
        self.cancelled: set[str] = set()
        self.welcome: Welcome | None = None
        self.known_incarnation = 0
        self.start_coordinator()

    @classmethod
    def whole(cls, **options: int) -> World:
        """With every member present and the first table announced."""
        world = cls(**options)
        for place in world.core.members.places:
            world.start(place)
        world.connect_gateway()
        world.settle()
        return world

    def lane(self, index: int = 0) -> SimLane:
        lane = self.workers[Member(0, Role.ATTENTION, index)]
        assert isinstance(lane, SimLane)
        return lane

    def _number(self) -> int:
        self.serial += 1
        return self.serial

    # --- connections

    def _connect(self, first: object) -> bytes:
        peer = f"peer-{self._number()}".encode()
        self.connections[peer] = Connection()
        self.say(peer, first)
        return peer

    def say(self, peer: bytes, message: object) -> None:
        self.connections[peer].up.append(codec.encode(message))  # type: ignore[arg-type]

    def cut(self, peer: bytes) -> None:
        self.connections.pop(peer, None)

    # --- members

    def start_coordinator(self) -> None:
        self.core = Coordinator(
            self.unit,
            incarnation=self._number(),
            new_key=lambda: b"k" * 32,
            observer=self.counts,
            lead=self.lead,
        )
        for peer in list(self.connections):
            self.cut(peer)

    def restart_coordinator(self) -> None:
        """A new process; everyone connects and registers again."""
        self.start_coordinator()
        for member, worker in self.workers.items():
            self.of_worker[member] = self._connect(worker.register())
        self.connect_gateway()

    def start(self, member: Member) -> None:
        number = self._number()
        worker: SimWorker = (
            SimExpert(member, number)
            if member.role is Role.EXPERT
            else SimLane(member, number, self.capacity)
        )
        self.workers[member] = worker
        self.of_worker[member] = self._connect(worker.register())

    def kill(self, member: Member) -> None:
        self.workers.pop(member, None)
        peer = self.of_worker.pop(member, None)
        if peer is not None:
            self.cut(peer)

    def reconnect(self, member: Member) -> None:
        """The connection breaks, the process does not."""
        self.cut(self.of_worker[member])
        self.of_worker[member] = self._connect(self.workers[member].register())

    def heartbeat(self, member: Member) -> None:
        worker = self.workers[member]
        self.say(self.of_worker[member], Heartbeat(incarnation=worker.incarnation, epoch=worker.epoch))

    def fault(self, member: Member, peer: Member | None) -> None:
        worker = self.workers[member]
        worker.active = False
        fault = Fault(epoch=worker.epoch, step=0, incarnation=worker.incarnation, peer=peer, text="test")
        self.say(self.of_worker[member], fault)

    # --- the gateway

    def connect_gateway(self) -> None:
        self.cut(self.gateway_peer)
        self.welcome = None
        self.gateway_peer = self._connect(GatewayHello(name="gw", incarnation=1, credential=""))

    def submit(self, prompt: list[int], *, most: int = 8, seed: int = 0, ignore_eos: bool = False) -> str:
        owned = Owned(f"r{self._number()}", prompt, Sampling(seed=seed), most, ignore_eos)
        self.owned[owned.request_id] = owned
        if self.welcome is not None:
            self.say(self.gateway_peer, owned.submit())
        return owned.request_id

    def cancel(self, request_id: str) -> None:
        self.cancelled.add(request_id)
        self.say(self.gateway_peer, Cancel(request_id=request_id))

    def open_requests(self) -> list[Owned]:
        return [
            owned
            for name, owned in self.owned.items()
            if owned.finish_reason is None and name not in self.rejected and name not in self.cancelled
        ]

    def _gateway_hears(self, message: object) -> None:
        match message:
            case Welcome():
                first = self.welcome is None
                self.welcome = message
                if first:
                    for owned in self.open_requests():
                        self.say(self.gateway_peer, owned.submit())
            case Rejected():
                self.rejected[message.request_id] = message
            case Tokens() if message.request_id not in self.cancelled:
                owned = self.owned[message.request_id]
                try:
                    owned.accept(message)
                except MissingTokensError:
                    self.say(self.gateway_peer, owned.submit())
                self.check_answer(owned)

    def check_answer(self, owned: Owned) -> None:
        right = answer(owned.prompt, owned.sampling.seed, owned.max_new_tokens, ignore_eos=owned.ignore_eos)
        assert owned.answer == right[: len(owned.answer)], (
            f"{owned.request_id}: {owned.answer} is not {right}"
        )
        if owned.finish_reason:
            assert owned.answer == right
            assert owned.finish_reason == ("stop" if right[-1] == EOS and not owned.ignore_eos else "length")

    # --- delivery

    def deliver_up(self, peer: bytes) -> None:
        """The coordinator reads one message of a connection."""
        message = codec.decode_at_coordinator(self.connections[peer].up.popleft())
        match message:
            case Register():
                self.core.registered(peer, message, self.now_s)
            case GatewayHello():
                self.core.hello(peer, message, self.now_s)
            case Submit() | Cancel():
                self.core.gateway_said(peer, message, self.now_s)
            case _:
                self.core.worker_said(peer, message, self.now_s)
        self.flush()

    def flush(self) -> None:
        """The coordinator's messages enter the connections; a closed one is noticed."""
        while outbox := self.core.take_outbox():
            gone = []
            for peer, out in outbox:
                if peer in self.connections:
                    self.connections[peer].down.append(codec.encode(out))
                elif peer not in gone:
                    gone.append(peer)
            for peer in gone:
                self.core.gone(peer, self.now_s)

    def deliver_down(self, peer: bytes) -> None:
        """A worker or the gateway reads one message."""
        frame = self.connections[peer].down.popleft()
        if peer == self.gateway_peer:
            self._gateway_hears(codec.decode_at_gateway(frame))
            return
        member = next((member for member, own in self.of_worker.items() if own == peer), None)
        if member is None:
            return
        worker, message = self.workers[member], codec.decode_at_worker(frame)
        reply = worker.hear(message)
        if isinstance(message, Refused):
            self.refused.add(member)
        if reply is not None:
            self.say(peer, reply)

    def deliverable(self) -> list[tuple[str, bytes]]:
        ups = [("up", peer) for peer, connection in self.connections.items() if connection.up]
        downs = [("down", peer) for peer, connection in self.connections.items() if connection.down]
        return [*ups, *downs]

    def deliver(self, direction: str, peer: bytes) -> None:
        (self.deliver_up if direction == "up" else self.deliver_down)(peer)

    def pass_time(self, seconds: float) -> None:
        """In one piece; living workers have sent their heartbeats meanwhile."""
        for member, worker in self.workers.items():
            if member in self.refused:
                self.say(self.of_worker[member], worker.register())
            self.heartbeat(member)
        self.refused.clear()
        while ups := [peer for direction, peer in self.deliverable() if direction == "up"]:
            self.deliver_up(ups[0])
        self.now_s += seconds
        self.core.tick(self.now_s)
        self.flush()

    def settle(self) -> None:
        """Deliver everything, and let time pass until nothing changes."""
        for _ in range(60):
            for _ in range(20_000):
                waiting = self.deliverable()
                if not waiting:
                    break
                self.deliver(*waiting[0])
            else:
                raise AssertionError("messages without end")
            if self.core.epochs.in_force and not self.open_requests():
                return
            self.pass_time(0.5)
        if self.open_requests():
            raise AssertionError(f"not at rest: {self.describe()}")

    def describe(self) -> str:
        return msgspec.json.encode(
            {
                "state": self.core.epochs.state,
                "epoch": self.core.epochs.number,
                "waits": self.core.waiting_for(self.now_s),
                "waiting": [request.id for request in self.core.work.waiting],
                "running": {
                    index: [
                        (request.id, request.attempt, request.computed, request.issued)
                        for request in lane.running
                    ]
                    for index, lane in self.core.work.lanes.items()
                },
                "pending": [step.number for step in self.core.work.pending],
                "open": [owned.request_id for owned in self.open_requests()],
            }
        ).decode()


PREFILL, DECODE = Phase.PREFILL, Phase.DECODE
