"""Who fills which place of the unit. Seats are by place, so at most one incarnation acts for each.

register   empty place                      -> seated
           same incarnation again           -> seated anew (its connection broke)
           another incarnation, place taken -> the newest authenticated wins; the old one is
                                               superseded: it stays out while the place is taken
leave      seated                           -> empty place
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from afd_runtime.protocol.messages import LaneCapacity, Register
from afd_unit.identity import Member, Role

Peer = bytes
"""Name of one connection, given by the socket."""

LOST_AFTER_S = 3.0
"""Silence after which a seated worker counts as lost. Workers send a heartbeat every second."""
REMEMBERED_SUPERSEDED = 1024
HIGHEST_NUMBER = 1 << 48
"""Of an epoch or a step: a million steps a second for nine years."""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One worker in its place, over one connection."""

    member: Member
    incarnation: int
    peer: Peer
    checkpoint: str
    data_address: str | None
    capacity: LaneCapacity | None


class Members:
    """The places of a unit and who sits there."""

    def __init__(self, *, unit: int, attention: int, expert: int) -> None:
        lanes = [Member(unit, Role.ATTENTION, index) for index in range(attention)]
        experts = [Member(unit, Role.EXPERT, index) for index in range(expert)]
        self.places: tuple[Member, ...] = (*lanes, *experts)
        self.seats: dict[Member, Seat] = {}
        self._heard_s: dict[Member, float] = {}
        self._superseded: deque[int] = deque(maxlen=REMEMBERED_SUPERSEDED)

    def refusal(self, register: Register, peer: Peer) -> str | None:
        """Why this worker cannot be seated, in words for its log; None if it can."""
        member = register.member
        seat = self.of_peer(peer)
        if seat is not None and seat.member != member:
            return f"this connection fills place {seat.member} already"
        if member not in self.places:
            return f"this unit has no place {member}; it has {', '.join(map(str, self.places))}"
        if max(register.epoch, register.committed_step) > HIGHEST_NUMBER:
            return (
                f"{member} reports epoch {register.epoch} and step {register.committed_step}: past any life"
            )
        if register.incarnation in self._superseded and self._taken_by_another(register):
            return f"place {member} was taken over by a newer process"
        if member.role is Role.ATTENTION and register.capacity is None:
            return f"lane {member} did not say its capacity"
        if member.role is Role.EXPERT and not register.data_address:
            return f"expert worker {member} did not say its data address"
        for other in self.seats.values():
            if other.member != member and other.checkpoint != register.checkpoint:
                return (
                    f"{member} has checkpoint {register.checkpoint}, {other.member} has {other.checkpoint}: "
                    "all members of a unit must load the same one"
                )
        return None

    def _taken_by_another(self, register: Register) -> bool:
        """Of two living processes the superseded one must not take the place back, else they would
        take turns for ever. Once the place is empty it may: registrations can overtake one another,
        and the one that looked newer may have been the dying one."""
        seat = self.seats.get(register.member)
        return seat is not None and seat.incarnation != register.incarnation

    def register(self, register: Register, peer: Peer, now_s: float) -> Seat | None:
        """Seat a worker that `refusal` lets in. Returns the seat that it took over, if any."""
        member = register.member
        old = self.seats.get(member)
        if old is not None and old.incarnation != register.incarnation:
            self._superseded.append(old.incarnation)
        self.seats[member] = Seat(
            member=member,
            incarnation=register.incarnation,
            peer=peer,
            checkpoint=register.checkpoint,
            data_address=register.data_address,
            capacity=register.capacity,
        )
        self._heard_s[member] = now_s
        return old

    def leave(self, member: Member) -> None:
        """The mirror image of `register`."""
        del self.seats[member]
        del self._heard_s[member]

    def of_peer(self, peer: Peer) -> Seat | None:
        return next((seat for seat in self.seats.values() if seat.peer == peer), None)

    def heard(self, member: Member, now_s: float) -> None:
        self._heard_s[member] = now_s

    def heard_since(self, member: Member, moment_s: float) -> bool:
        return self._heard_s[member] > moment_s

    def forgive(self, seconds: float) -> None:
        """Do not count a time in which nobody listened as the workers' silence."""
        for member in self._heard_s:
            self._heard_s[member] += seconds

    def silent(self, now_s: float) -> list[Seat]:
        return [seat for member, seat in self.seats.items() if now_s - self._heard_s[member] > LOST_AFTER_S]

    def missing(self, role: Role) -> list[Member]:
        return [place for place in self.places if place.role is role and place not in self.seats]

    def needs(self) -> str | None:
        """What must still come before steps can run, in words: every expert worker (each holds
        experts that no other has) and one lane (lanes are interchangeable). None if nothing."""
        waiting = [str(place) for place in self.missing(Role.EXPERT)]
        if not any(place.role is Role.ATTENTION for place in self.seats):
            waiting.append("a lane")
        return ", ".join(waiting) or None
