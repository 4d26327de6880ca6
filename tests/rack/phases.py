"""How long each part of something long took: said as it happens, and as a table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    def __init__(self) -> None:
        self._took: list[tuple[str, float]] = []
        self.current = "starting"

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """One part. `current` names it until the next begins, also when it fails."""
        self.current = what
        started = time.monotonic()
        yield
        self._took.append((what, time.monotonic() - started))
        print(f"{self._took[-1][1]:7.1f} s  {what}", flush=True)

    def table(self) -> str:
        rows = [*self._took, ("total", sum(seconds for _, seconds in self._took))]
        return "\n".join(f"{what:40} {seconds:7.1f} s" for what, seconds in rows)
