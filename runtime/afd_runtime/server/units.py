"""All coordinators of the deployment: which one gets a request, and which one when that is lost.

A request is always either at one link or homeless. Homeless ones are submitted as soon as a unit
serves: first come, first served. A client waits meanwhile; it sees a pause, nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from afd_runtime.protocol.codec import FrameError
from afd_runtime.protocol.messages import Cancel, Rejected, Tokens
from afd_runtime.server import errors
from afd_runtime.server.link import Link
from afd_runtime.server.ownership import MissingTokensError, Owned

log = logging.getLogger(__name__)

RESOLVE_EVERY_S = 3.0
HOMELESS_AT_MOST_S = 600.0
"""How long a request waits for a unit to serve again; an expert's replacement loads its weights."""


@dataclass(frozen=True)
class Progress:
    """New committed tokens of one request; the last one carries the reason."""

    tokens: list[int]
    finish_reason: str | None


@dataclass(eq=False)
class Flight:
    """A request that is being answered."""

    owned: Owned
    link: Link | None = None
    refused_by: set[Link] = field(default_factory=set)
    news: asyncio.Queue[Progress | errors.ApiError] = field(default_factory=asyncio.Queue)


class Units:
    """Listener of all links."""

    def __init__(self, coordinators: Sequence[str], *, model_id: str, name: str, credential: str) -> None:
        """`coordinators` are `host:port`, resolved anew every few seconds: a host may be many."""
        self._coordinators, self._model_id = coordinators, model_id
        self._name, self._incarnation, self._credential = name, secrets.randbits(63), credential
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}
        self._flights: dict[str, Flight] = {}
        """By request id, in order of arrival."""
        self.ever_served = False

    # --- for the server

    @property
    def serving(self) -> bool:
        return any(link.serving for link in self._all())

    @property
    def connected(self) -> bool:
        return any(link.welcome is not None for link in self._all())

    def capacity_tokens(self) -> int | None:
        """Most tokens (prompt + answer) that any unit takes; None while none has said."""
        return max((link.welcome.capacity_tokens for link in self._all() if link.welcome), default=0) or None

    async def generate(self, owned: Owned) -> AsyncGenerator[Progress, None]:
        """Submit a request and follow it to its end; closing the iterator cancels it. Raises ApiError."""
        if not self.serving:
            raise errors.not_serving("no unit serves this model at the moment")
        flight = Flight(owned)
        self._flights[owned.request_id] = flight
        try:
            self._place(flight)
            while True:
                news = await self._next(flight)
                if isinstance(news, errors.ApiError):
                    raise news
                yield news
                if news.finish_reason is not None:
                    return
        finally:
            del self._flights[owned.request_id]
            if flight.link is not None and owned.finish_reason is None:
                flight.link.send(Cancel(request_id=owned.request_id))

    @staticmethod
    async def _next(flight: Flight) -> Progress | errors.ApiError:
        while True:
            try:
                return await asyncio.wait_for(flight.news.get(), HOMELESS_AT_MOST_S)
            except TimeoutError:
                # A paused unit holds its requests; only one that nobody holds is given up.
                if flight.link is None:
                    return errors.not_serving("no unit has come back to finish this request")

    # --- placing

    def _all(self) -> list[Link]:
        return [link for link, _ in self._links.values()]

    def _load(self, link: Link) -> int:
        return sum(1 for flight in self._flights.values() if flight.link is link)

    def _place(self, flight: Flight) -> None:
        """Submit to the least loaded serving unit, or stay homeless."""
        candidates = [link for link in self._all() if link.serving and link not in flight.refused_by]
        if not candidates:
            return
        flight.link = min(candidates, key=self._load)
        try:
            flight.link.send(flight.owned.submit())
        except FrameError as error:
            flight.link = None
            flight.news.put_nowait(errors.too_long("prompt", str(error)))

    # --- what links tell

    def welcomed(self, link: Link) -> None:
        if link.serving:
            self.ever_served = True
            for flight in self._flights.values():
                if flight.link is None:
                    self._place(flight)

    def lost(self, link: Link) -> None:
        homeless = [flight for flight in self._flights.values() if flight.link is link]
        for flight in homeless:
            flight.link = None
        for flight in homeless:
            self._place(flight)
        if homeless:
            log.warning("requests replayed", extra={"coordinator": link.address, "count": len(homeless)})

    def answered(self, link: Link, message: Tokens | Rejected) -> None:
        flight = self._flights.get(message.request_id)
        if flight is None or flight.link is not link:
            return
        if isinstance(message, Rejected):
            self._rejected(flight, link, message)
            return
        try:
            new = flight.owned.accept(message)
        except MissingTokensError as error:
            log.warning("tokens missing", extra={"reason": error})
            self._place(flight)
            return
        if new or flight.owned.finish_reason:
            flight.news.put_nowait(Progress(new, flight.owned.finish_reason))

    def _rejected(self, flight: Flight, link: Link, rejected: Rejected) -> None:
        if rejected.attempt < flight.owned.attempt:
            return
        flight.link = None
        if rejected.reason == "queue_full":
            flight.refused_by.add(link)
            self._place(flight)
        if flight.link is None:
            flight.news.put_nowait(_error(rejected))

    # --- finding coordinators

    async def run(self) -> None:
        """Keep one link to each address, until cancelled."""
        try:
            while True:
                await self._resolve()
                await asyncio.sleep(RESOLVE_EVERY_S)
        finally:
            for address in list(self._links):
                await self._drop(address)

    async def _resolve(self) -> None:
        wanted: set[str] = set()
        for coordinator in self._coordinators:
            found = await _addresses(coordinator)
            # A name that does not resolve now keeps what it had: DNS may be what is broken.
            wanted |= self._links.keys() if found is None else found
        for address in wanted - self._links.keys():
            link = Link(
                address,
                self,
                model_id=self._model_id,
                name=self._name,
                incarnation=self._incarnation,
                credential=self._credential,
            )
            self._links[address] = (link, asyncio.create_task(link.run()))
        for address in self._links.keys() - wanted:
            await self._drop(address)

    async def _drop(self, address: str) -> None:
        _, task = self._links.pop(address)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _addresses(coordinator: str) -> set[str] | None:
    """Every `address:port` behind `host:port`; None when the name does not resolve."""
    host, _, port = coordinator.rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        log.debug("unresolved", extra={"host": host, "reason": error})
        return None
    return {
        f"[{entry[4][0]}]:{port}" if ":" in str(entry[4][0]) else f"{entry[4][0]}:{port}" for entry in found
    }


def _error(rejected: Rejected) -> errors.ApiError:
    match rejected.reason:
        case "queue_full":
            return errors.busy(rejected.text, rejected.retry_after_s)
        case "too_long":
            return errors.too_long("prompt", rejected.text)
        case "failed":
            return errors.failed(rejected.text)
        case _:
            return errors.invalid("prompt", rejected.text)
