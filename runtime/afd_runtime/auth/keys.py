"""The public keys that verify ServiceAccount tokens, as the API server publishes them.

Fetched when a token names a key that is not known, at most once every few seconds whatever tokens
come in; so a rotation of keys is followed at once, and a flood of forged key names is not.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable

import aiohttp
import jwt

from afd_runtime.auth import shown

log = logging.getLogger(__name__)

API_SERVER = "https://kubernetes.default.svc"
JWKS_PATH = "/openid/v1/jwks"
FETCH_TIMEOUT_S = 5.0
FETCH_AT_MOST_EVERY_S = 5.0

Fetch = Callable[[], Awaitable[jwt.PyJWKSet]]


class KeysUnavailableError(Exception):
    """The API server did not give its keys; the message says why."""


class PublishedKeys:
    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._clock = fetch, clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s: float | None = None
        self._fetching = asyncio.Lock()
        """All workers of a unit come at once: they wait for one fetch."""

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """None if the API server does not publish that key. Raises KeysUnavailableError."""
        async with self._fetching:
            if key_id not in self._keys and self._may_fetch():
                self._fetched_s = self._clock()
                published = await self._fetch()
                self._keys = {key.key_id: key for key in published.keys if key.key_id}
                log.info("keys", extra={"count": len(self._keys)})
        return self._keys.get(key_id)

    def _may_fetch(self) -> bool:
        return self._fetched_s is None or self._clock() - self._fetched_s >= FETCH_AT_MOST_EVERY_S


def from_api_server(*, token_file: str, ca_file: str, url: str = API_SERVER) -> Fetch:
    """Any service account may read the keys (role `system:service-account-issuer-discovery`), but
    must show a token of the API server's own audience."""

    async def fetch() -> jwt.PyJWKSet:
        try:
            context = ssl.create_default_context(cafile=ca_file)
            headers = {"Authorization": f"Bearer {shown.read(token_file)}"}
            timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{url}{JWKS_PATH}", headers=headers, ssl=context) as answer,
            ):
                answer.raise_for_status()
                # The API server says `application/jwk-set+json`.
                return jwt.PyJWKSet.from_dict(await answer.json(content_type=None))
        except (
            aiohttp.ClientError,
            TimeoutError,
            OSError,
            ValueError,
            jwt.PyJWTError,
            shown.NoCredentialError,
        ) as error:
            raise KeysUnavailableError(f"{url}{JWKS_PATH}: {error or type(error).__name__}") from error

    return fetch
