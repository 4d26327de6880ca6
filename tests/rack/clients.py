"""Talk to the rack's API server, and wait for things: a wait that fails says what it waited for."""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kubernetes import client, config

T = TypeVar("T")
POLL_S = 0.1


class WaitError(AssertionError):
    """A condition did not come true in time; the message says which, and what was seen last."""


def connect(kubeconfig: Path) -> client.ApiClient:
    return config.new_client_from_config(str(kubeconfig))


def answers(server: str, ca: Path, certificate: Path, key: Path) -> bool:
    """Whether the API server says that it is ready."""
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(certificate, key)
    try:
        with urllib.request.urlopen(f"{server}/readyz", timeout=5, context=context) as answer:
            return answer.status == 200
    except OSError:  # refused while it starts; 500 while its post-start hooks run
        return False


def wait(
    what: str, check: Callable[[], T | None], within_s: float, seen: Callable[[], str] = lambda: ""
) -> T:
    """Ask until `check` returns something true. Raises WaitError with `seen()`, the state that matters."""
    deadline = time.monotonic() + within_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise WaitError(f"not within {within_s:.0f} s: {what}\n{seen()}".rstrip())
        time.sleep(POLL_S)
