"""Which epoch this process is in, and so which messages it acts on.

    OUT --table with this incarnation, newer epoch--> IN --abort, fault, newer table--> OUT

Everything of another epoch is dropped and counted. Epochs only go up, whatever arrives in which order.
"""

from __future__ import annotations

from collections import Counter

from afd_runtime.protocol.messages import Abort, Table
from afd_runtime.transport.epoch import DataEpoch
from afd_unit.identity import Member, Role


class Membership:
    def __init__(self, member: Member, incarnation: int) -> None:
        self.member = member
        self.incarnation = incarnation
        self.epoch = 0
        """Highest epoch that this incarnation has been told of."""
        self.seated = False
        self.dropped: Counter[str] = Counter()
        """Messages not acted on, by kind."""

    def adopt(self, table: Table) -> bool:
        """Take note of a table; False if it is not newer than the one known (dropped). `seated`
        says afterwards whether this incarnation is in it."""
        if table.epoch <= self.epoch:
            self.dropped["table"] += 1
            return False
        self.epoch = table.epoch
        self.seated = self.is_in(table)
        return True

    def is_in(self, table: Table) -> bool:
        return any(
            entry.member == self.member and entry.incarnation == self.incarnation for entry in table.members
        )

    def end(self, abort: Abort) -> bool:
        """The epoch is over; False if it was not this one, or over already (dropped)."""
        if abort.epoch != self.epoch:
            self.dropped["abort"] += 1
            return False
        self.seated = False
        return True

    def acts(self, epoch: int, kind: str) -> bool:
        """Whether to act on a message of `epoch`."""
        if self.seated and epoch == self.epoch:
            return True
        self.dropped[kind] += 1
        return False


def data_epoch(table: Table, expert_workers: int) -> DataEpoch | None:
    """What the data plane needs of a table; None while an expert worker has no place or address."""
    addresses = {
        entry.member.index: entry.data_address for entry in table.members if entry.member.role is Role.EXPERT
    }
    workers = [addresses.get(index) for index in range(expert_workers)]
    known = [address for address in workers if address]
    if len(known) < expert_workers:
        return None
    lanes = {e.member.index: e.incarnation for e in table.members if e.member.role is Role.ATTENTION}
    return DataEpoch(number=table.epoch, key=table.data_key, lanes=lanes, workers=known)
