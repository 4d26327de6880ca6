"""The page pool: which KV pages are free.

    free list --allocate(n)--> a request's pages --release--> free list

Every page is in exactly one place; `allocate` and `release` are mirror images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class PageError(RuntimeError):
    """Pages were asked for that are not there, or given back that were not out: a bookkeeping fault."""


class PagePool:
    """Pages 0..total-1. Released pages go to the end, so a page rests as long as possible: a stray
    read shows up as garbage rather than as another request's fresh text."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = deque(range(total))
        self._used: set[int] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Raises PageError when fewer than `count` are free; then none is taken."""
        if count > self.free:
            raise PageError(f"{count} KV pages asked for, {self.free} of {self.total} are free")
        pages = [self._free.popleft() for _ in range(count)]
        self._used.update(pages)
        return pages

    def release(self, pages: Sequence[int]) -> None:
        """Raises PageError for a page that is not out, or named twice; then none is given back."""
        strange = set(pages) - self._used
        if strange or len(set(pages)) != len(pages):
            raise PageError(f"KV pages {sorted(strange) or list(pages)} given back, but they are not out")
        self._used.difference_update(pages)
        self._free.extend(pages)
