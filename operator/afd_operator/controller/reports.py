"""What coordinators say of their units: `GET /status`, asked at most every 30 s, so that a status which
shows measured numbers is written no more often than that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from afd_operator.controller.observe import Key
from afd_operator.lifecycle.observed import PodState
from afd_unit import ports, report
from afd_unit.identity import Role
from afd_unit.report import UnitReport

FRESH_S = 30.0
TIMEOUT_S = 2.0
"""A coordinator answers from memory; one that takes longer has other troubles, and must not hold us up."""
LARGEST_BYTES = 4 << 20
"""A report of 1000 workers is about 200 kB."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    """`ready` is part of it: a coordinator that became ready, or ceased to be, is asked anew."""

    pod: str
    ready: bool
    at: float
    found: UnitReport | None


class Reports:
    """The latest report of each unit."""

    def __init__(self, token_file: Path | None) -> None:
        self._token_file = token_file
        self._answers: dict[tuple[Key, int], _Answer] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def of(self, key: Key, pods: tuple[PodState, ...]) -> Mapping[int, UnitReport]:
        """Reports by unit; a coordinator that does not answer has none."""
        coordinators = {
            pod.unit: pod for pod in pods if pod.role is Role.COORDINATOR and pod.unit is not None
        }
        self._forget(key, set(coordinators))
        running = [(unit, pod) for unit, pod in coordinators.items() if pod.ip and pod.phase == "Running"]
        answers = await asyncio.gather(*(self._latest(key, unit, pod) for unit, pod in running))
        return {unit: found for (unit, _), found in zip(running, answers, strict=True) if found}

    def _forget(self, key: Key, units: set[int]) -> None:
        for known in [k for k in self._answers if k[0] == key and k[1] not in units]:
            del self._answers[known]

    async def _latest(self, key: Key, unit: int, pod: PodState) -> UnitReport | None:
        known = self._answers.get((key, unit))
        now = time.monotonic()
        same = known is not None and (known.pod, known.ready) == (pod.uid, pod.ready)
        if known is not None and same and now - known.at < FRESH_S:
            return known.found
        found = await self._ask(key, unit, pod)
        self._answers[key, unit] = _Answer(pod.uid, pod.ready, now, found)
        return found

    async def _ask(self, key: Key, unit: int, pod: PodState) -> UnitReport | None:
        address = f"[{pod.ip}]" if pod.ip and ":" in pod.ip else pod.ip
        url = f"http://{address}:{ports.COORDINATOR_HTTP}/status"
        try:
            found = report.decode(await self._get(url))
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, ValueError) as error:
            logger.debug("no report", extra={"deployment": key, "unit": unit, "error": error})
            return None
        if (found.deployment, found.unit) != (str(key), unit):
            # Pod addresses are used again: this is another unit's coordinator.
            return None
        return found

    async def _get(self, url: str) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        # Read each time: the kubelet renews a projected token in place.
        token = self._token_file.read_text().strip() if self._token_file else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            answer.raise_for_status()
            body = await answer.content.read(LARGEST_BYTES + 1)
            while len(body) <= LARGEST_BYTES and (more := await answer.content.read(LARGEST_BYTES)):
                body += more
        if len(body) > LARGEST_BYTES:
            raise ValueError(f"a report of more than {LARGEST_BYTES} bytes")
        return body
