"""What the coordinator asks of a credential."""

from __future__ import annotations

from typing import Protocol

from afd_unit.identity import Member


class DeniedError(Exception):
    """The credential does not prove what was claimed. The message is for the peer and the log: it
    says what is wrong and never repeats the credential."""


class Judge(Protocol):
    """Every method returns if the claim is proven, and raises DeniedError if not."""

    async def worker(self, credential: str, member: Member) -> None:
        """May the bearer fill this place?"""

    async def gateway(self, credential: str) -> None:
        """May the bearer submit requests?"""

    async def status_reader(self, credential: str) -> None:
        """May the bearer read `/status`?"""
