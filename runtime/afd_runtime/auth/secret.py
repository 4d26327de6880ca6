"""One secret that all processes of a local unit share."""

from __future__ import annotations

import hmac

from afd_runtime.auth.judge import DeniedError
from afd_unit.identity import Member


class SecretJudge:
    def __init__(self, secret: str) -> None:
        if not secret:
            raise ValueError("the unit's secret is empty")
        self._secret = secret.encode()

    def _check(self, credential: str) -> None:
        if not hmac.compare_digest(credential.encode(), self._secret):
            raise DeniedError("the secret is not this unit's")

    async def worker(self, credential: str, member: Member) -> None:
        self._check(credential)

    async def gateway(self, credential: str) -> None:
        self._check(credential)

    async def status_reader(self, credential: str) -> None:
        self._check(credential)
