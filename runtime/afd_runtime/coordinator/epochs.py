"""Which member table is in force, and what that makes of the unit.

               all needed members seated: Table
    FORMING ------------------------------------> SERVING
                                                  |    ^
      an expert worker or the last lane is lost,  |    |  all needed members seated,
      or a fault: Abort                           v    |  suspects heard, delay over: Table
                                                  PAUSED

A lane that comes or goes while others serve passes through Abort and Table in one instant and is
never seen as PAUSED. FORMING is left once and for ever: a unit that has run a step is PAUSED, not
FORMING, when it waits again.
"""

from __future__ import annotations

from collections.abc import Mapping

from afd_unit.identity import Member
from afd_unit.report import UnitState

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0


class Epochs:
    """The number goes up with every table and with every higher number that a worker reports."""

    def __init__(self) -> None:
        self.number = 0
        self.table: Mapping[Member, int] = {}
        """Incarnations in force. Empty while no table is: nothing is issued then."""
        self._served = False
        self._suspects: dict[Member, float] = {}
        """Accused by a peer, and when. Not in a new table before they are heard again."""
        self._faults = 0
        """Since the last committed step: each doubles the delay before the next table."""
        self._not_before_s = 0.0

    @property
    def in_force(self) -> bool:
        return bool(self.table)

    @property
    def state(self) -> UnitState:
        if self.in_force:
            return UnitState.SERVING
        return UnitState.PAUSED if self._served else UnitState.FORMING

    def seen(self, number: int) -> None:
        """A worker has been in epoch `number`, under this coordinator or one before it: the next
        table gets a higher one. Only while no table is in force."""
        self.number = max(self.number, number)

    def acts(self, member: Member, incarnation: int, epoch: int) -> bool:
        """Whether a message belongs to the table in force."""
        return epoch == self.number and self.table.get(member) == incarnation

    def open(self, table: Mapping[Member, int]) -> None:
        self.number += 1
        self.table = table
        self._served = True
        self._suspects.clear()

    def close(self) -> None:
        """The mirror image of `open`."""
        self.table = {}

    def fault(self, now_s: float) -> None:
        """A step failed. The first table after progress comes at once, repeated ones ever later."""
        if self._faults:
            self._not_before_s = now_s + min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (self._faults - 1))
        self._faults += 1

    def progress(self) -> None:
        """A step was committed: whatever failed before is over."""
        self._faults = 0
        self._not_before_s = 0.0

    def suspect(self, member: Member, now_s: float) -> None:
        """A peer accuses it: it must be heard again before the next table."""
        self._suspects.setdefault(member, now_s)

    def cleared(self, member: Member) -> None:
        """The suspect left, or a new process took its place."""
        self._suspects.pop(member, None)

    def suspects(self) -> Mapping[Member, float]:
        return self._suspects

    def delayed_s(self, now_s: float) -> float:
        return max(0.0, self._not_before_s - now_s)
