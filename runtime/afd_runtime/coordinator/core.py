"""The coordinator as a pure machine: something is said, time passes, answers come out.

    registered / said / gone / tick                         events, with the time
            |
       interrupt   Abort to all, steps that were out did not happen
            |
       (change)    seat, unseat, replay
            |
       advance     Table when it can be; assign; issue steps up to the lead
            |
       take_outbox messages, each with the connection it goes to

Every change of membership takes this one path, so there is one answer to every loss. No event
raises for what a peer said: it is dropped and counted, refused with a reason, or ends the epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from afd_runtime.coordinator import admission, sentences
from afd_runtime.coordinator.desk import Desk
from afd_runtime.coordinator.epochs import Epochs
from afd_runtime.coordinator.members import Members, Peer, Seat
from afd_runtime.coordinator.meter import Meter
from afd_runtime.coordinator.observer import Observer
from afd_runtime.coordinator.steps import Step, unbelievable
from afd_runtime.coordinator.window import Window
from afd_runtime.coordinator.workload import Committed, Workload
from afd_runtime.protocol.messages import (
    Abort,
    Cancel,
    ExpertResult,
    Fault,
    GatewayHello,
    Heartbeat,
    LaneResult,
    Refused,
    Register,
    Rejected,
    Submit,
    ToGateway,
    ToWorker,
    Welcome,
)
from afd_runtime.protocol.plan import MAX_LEAD
from afd_unit.identity import Role
from afd_unit.report import UnitState
from afd_unit.unitfile import UnitFile

log = logging.getLogger(__name__)

LEAD = 2
"""One step runs, one is queued behind it: enough to hide the way to the coordinator and back."""
STALL_S = 1.0
"""A tick later than this after the one before: the coordinator itself did not listen meanwhile."""


class Coordinator:
    def __init__(
        self,
        unit: UnitFile,
        *,
        incarnation: int,
        new_key: Callable[[], bytes],
        observer: Observer,
        lead: int = LEAD,
    ) -> None:
        if not 1 <= lead <= MAX_LEAD:
            raise ValueError(f"a lead of {lead} steps is not within 1..{MAX_LEAD}")
        self.unit = unit
        self.incarnation = incarnation
        self.members = Members(unit=unit.unit, attention=unit.attention_workers, expert=unit.expert_workers)
        self.epochs = Epochs()
        self.work = Workload(microbatches=unit.microbatches, lead=lead)
        self.limits: admission.Limits | None = None
        self._meter = Meter(unit.expert_workers, observer)
        self._desk = Desk(self.work)
        self._ticked_s: float | None = None
        self._new_key = new_key
        self._observer = observer
        self._outbox: list[tuple[Peer, ToWorker | ToGateway]] = []

    @property
    def window(self) -> Window:
        return self._meter.window

    def take_outbox(self) -> list[tuple[Peer, ToWorker | ToGateway]]:
        messages, self._outbox = self._outbox, []
        return messages

    # --- events of workers

    def registered(self, peer: Peer, register: Register, now_s: float) -> None:
        """A worker whose credential is good wants its place."""
        member = register.member
        refusal = self.members.refusal(register, peer)
        if refusal:
            log.warning("refused", extra={"member": member, "reason": refusal})
            self._send(peer, Refused(reason=refusal))
            return
        self._interrupt(f"{member} registers")
        self.epochs.seen(register.epoch)
        self.epochs.cleared(member)
        self.work.seen_step(register.committed_step)
        old = self.members.register(register, peer, now_s)
        if old is not None and old.incarnation != register.incarnation:
            self._send(old.peer, Refused(reason=f"place {member} was taken over by a newer process"))
        log.info(
            "registered",
            extra={"member": member, "incarnation": register.incarnation, "epoch": register.epoch},
        )
        if register.capacity is not None and member.role is Role.ATTENTION:
            replays = self.work.lane_joined(
                member.index, register.incarnation, register.capacity, register.held
            )
            self._observer.replayed(replays)
            capacities = [seat.capacity for seat in self.members.seats.values() if seat.capacity]
            self.limits = admission.limits(self.unit.model.context_length, capacities)
        self._advance(now_s)

    def worker_said(
        self, peer: Peer, message: Heartbeat | LaneResult | ExpertResult | Fault, now_s: float
    ) -> None:
        """Anything but the registration."""
        seat = self.members.of_peer(peer)
        if seat is None:
            self._stranger(peer)
            return
        if seat.incarnation != message.incarnation:
            self._observer.dropped("incarnation")
            return
        self.members.heard(seat.member, now_s)
        match message:
            case LaneResult():
                self._lane_result(seat, message, now_s)
            case ExpertResult():
                self._expert_result(seat, message, now_s)
            case Fault():
                self._fault(seat, message, now_s)
        self._advance(now_s)

    def _lane_result(self, seat: Seat, result: LaneResult, now_s: float) -> None:
        if not self.epochs.acts(seat.member, seat.incarnation, result.epoch):
            self._observer.dropped("epoch")
            return
        wrong = self.work.result(seat.member.index, result)
        if wrong:
            self._end_epoch_by_fault(
                seat, f"result of step {result.step} contradicts its plan: {wrong}", now_s
            )
            return
        for step, committed in self.work.commit():
            self.epochs.progress()
            self._tell(committed)
            finished = sum(1 for entry in committed if entry.finish_reason)
            self._meter.committed(step, tokens=len(committed), finished=finished, now_s=now_s)

    def _expert_result(self, seat: Seat, result: ExpertResult, now_s: float) -> None:
        if not self.epochs.acts(seat.member, seat.incarnation, result.epoch):
            self._observer.dropped("epoch")
        elif wrong := unbelievable(result.times):
            self._end_epoch_by_fault(seat, f"times of step {result.step}: {wrong}", now_s)
        else:
            self._meter.expert(seat.member.index, result, now_s)

    def _fault(self, seat: Seat, fault: Fault, now_s: float) -> None:
        if fault.epoch != self.epochs.number:
            self._observer.dropped("epoch")
            return
        accused = self.members.seats.get(fault.peer) if fault.peer else None
        if self.epochs.in_force:
            self._end_epoch_by_fault(seat, fault.text, now_s, accused)
        elif accused is not None:
            self.epochs.suspect(accused.member, now_s)

    def _end_epoch_by_fault(self, by: Seat, text: str, now_s: float, accused: Seat | None = None) -> None:
        log.warning("fault", extra={"member": by.member, "peer": accused and accused.member, "text": text})
        self._condemn(text)
        self._interrupt(f"fault of {by.member}")
        self.epochs.fault(now_s)
        if accused is not None:
            self.epochs.suspect(accused.member, now_s)

    def _left(self, seat: Seat, why: str, now_s: float) -> None:
        log.warning("lost", extra={"member": seat.member, "incarnation": seat.incarnation, "reason": why})
        self._condemn(f"{seat.member} lost: {why}")
        self._interrupt(f"{seat.member} lost")
        self.members.leave(seat.member)
        self.epochs.cleared(seat.member)
        if seat.member.role is Role.ATTENTION:
            self._observer.replayed(self.work.lane_left(seat.member.index))

    def _condemn(self, cause: str) -> None:
        """End requests with which steps fail again and again."""
        for request in self.work.condemned():
            log.error("request failed", extra={"request": request.id, "cause": cause})
            self.work.remove(request)
            self._observer.rejected("failed")
            self._send(request.gateway, sentences.failed(request, cause))

    # --- events of gateways

    def hello(self, peer: Peer, hello: GatewayHello, now_s: float) -> None:
        """A gateway whose credential is good. One that comes over a new connection submits its
        requests again, so those of its old connections end here."""
        self._desk.arrive(peer, hello)
        self._send(peer, self._present())
        self._advance(now_s)

    def gateway_said(self, peer: Peer, message: Submit | Cancel, now_s: float) -> None:
        if peer not in self._desk.gateways:
            self._stranger(peer)
            return
        match message:
            case Cancel():
                self._desk.cancel(peer, message.request_id)
            case Submit():
                pace = self.window.finished_per_s(now_s)
                reply = self._desk.submit(peer, message, self.limits, finished_per_s=pace)
                if isinstance(reply, Rejected):
                    self._observer.rejected(reply.reason)
                if reply is not None:
                    self._send(peer, reply)
        self._advance(now_s)

    # --- events of either

    def _stranger(self, peer: Peer) -> None:
        """This coordinator is newer than the connection, or has given the place to another."""
        self._observer.dropped("unknown")
        self._send(peer, Refused(reason="this connection has not registered"))

    def gone(self, peer: Peer, now_s: float) -> None:
        """The connection is closed: nothing can be sent to it any more."""
        seat = self.members.of_peer(peer)
        if seat is not None:
            self._left(seat, "connection closed", now_s)
        if peer in self._desk.gateways:
            self._desk.leave(peer)
        self._advance(now_s)

    def tick(self, now_s: float) -> None:
        """Time passes. Call it several times a second, after what has arrived was handled."""
        gap_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        self._ticked_s = now_s
        if gap_s > STALL_S:
            self.members.forgive(gap_s)
        for seat in self.members.silent(now_s):
            self._left(seat, "silent", now_s)
        self._advance(now_s)

    # --- the four moves

    def _interrupt(self, why: str) -> None:
        """Abort, if a table is in force."""
        if not self.epochs.in_force:
            return
        log.info(
            "abort", extra={"epoch": self.epochs.number, "step": self.work.committed_step, "reason": why}
        )
        self.work.abort()
        abort = Abort(epoch=self.epochs.number, committed_step=self.work.committed_step)
        for member, incarnation in self.epochs.table.items():
            seat = self.members.seats.get(member)
            if seat is not None and seat.incarnation == incarnation:
                self._send(seat.peer, abort)
        self.epochs.close()

    def waiting_for(self, now_s: float) -> str | None:
        """What the next table waits for, in words; None if one can be, or is, in force."""
        if self.epochs.in_force:
            return None
        if needs := self.members.needs():
            return needs
        unheard = [
            str(member)
            for member, since_s in self.epochs.suspects().items()
            if not self.members.heard_since(member, since_s)
        ]
        if unheard:
            return f"a sign of life of {', '.join(unheard)}"
        if delay_s := self.epochs.delayed_s(now_s):
            return f"the next try in {delay_s:.1f} s, after repeated faults"
        return None

    def _advance(self, now_s: float) -> None:
        """Whatever can go on now, goes on."""
        if not self.epochs.in_force and self.waiting_for(now_s) is None:
            self._announce()
        if self.epochs.in_force:
            self.work.assign()
            while step := self.work.next_step(now_s):
                self._issue(step, now_s)
        self._greet()

    def _announce(self) -> None:
        """Table: everyone who is seated, from here on and in one epoch."""
        seats = sorted(self.members.seats.values(), key=lambda seat: seat.member)
        self.epochs.open({seat.member: seat.incarnation for seat in seats})
        log.info(
            "table",
            extra={"epoch": self.epochs.number, "members": " ".join(str(seat.member) for seat in seats)},
        )
        table = sentences.table(self.epochs.number, seats, self._new_key(), self.work.committed_step)
        for seat in seats:
            self._send(seat.peer, table)

    def _issue(self, step: Step, now_s: float) -> None:
        for seat in self.members.seats.values():
            self._send(seat.peer, sentences.plan(self.epochs.number, step, seat, int(now_s * 1e9)))

    # --- what goes out beside it

    def _tell(self, committed: list[Committed]) -> None:
        for entry in committed:
            self._send(
                entry.request.gateway,
                sentences.tokens(entry.request, entry.first, [entry.token], entry.finish_reason),
            )

    def _present(self) -> Welcome:
        serving = self.epochs.state is UnitState.SERVING
        return sentences.welcome(
            self.unit, self.epochs.number, self.incarnation, self.limits, serving=serving
        )

    def _greet(self) -> None:
        welcome = self._present()
        for peer in self._desk.gateways.to_greet(welcome):
            self._send(peer, welcome)

    def _send(self, peer: Peer, message: ToWorker | ToGateway) -> None:
        self._outbox.append((peer, message))
