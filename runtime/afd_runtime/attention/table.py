"""The request table: which requests are resident on a lane and what is known of each.

    free list --admit--> resident --release--> free list
                 ^           |
                 +-- abort: back to what was true at a committed step; unborn then -> released

A request's facts are its tokens (prompt, then sampled) and how many of them have their KV written.
Plans name positions, so running a step again just writes the same places again. For abort, each
request keeps marks: what was true after each of its last few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from afd_runtime.attention.kv_cache import KvCache
from afd_runtime.attention.limits import LaneLimits
from afd_runtime.attention.pages import PagePool
from afd_runtime.protocol.messages import Held
from afd_runtime.protocol.plan import MAX_LEAD, Sampling, SequenceWork


@dataclass(frozen=True)
class Mark:
    """After `step`: tokens with KV, and tokens known (one more when the last was just sampled)."""

    step: int
    written: int
    known: int


@dataclass
class Resident:
    """One request that holds a place and pages."""

    request_id: str
    attempt: int
    sampling: Sampling
    pages: list[int]
    slots: torch.Tensor
    """KV slot of each position, [pages * page_tokens]"""
    tokens: list[int] = field(default_factory=list)
    written: int = 0
    marks: list[Mark] = field(default_factory=list)

    @property
    def room(self) -> int:
        """Positions that its pages have."""
        return self.slots.shape[0]

    def advance(self, step: int, work: SequenceWork, sampled: int | None) -> None:
        """`work` was run in `step`, and gave token `sampled` if it samples."""
        end = work.start + work.count
        self.tokens[work.start :] = self.tokens[work.start : end] if work.tokens is None else work.tokens
        self.tokens += [] if sampled is None else [sampled]
        self.written = end
        # At most MAX_LEAD steps are out: everything up to `step - MAX_LEAD` is committed, so of
        # those only the newest mark can still be gone back to.
        settled = [mark for mark in self.marks if mark.step <= step - MAX_LEAD]
        recent = [mark for mark in self.marks if mark.step > step - MAX_LEAD]
        self.marks = [*settled[-1:], *recent, Mark(step, self.written, len(self.tokens))]

    def go_back(self, committed_step: int) -> bool:
        """Undo steps after `committed_step`; False when the request was not there yet."""
        self.marks = [mark for mark in self.marks if mark.step <= committed_step]
        if not self.marks:
            return False
        self.written = self.marks[-1].written
        del self.tokens[self.marks[-1].known :]
        return True


class RequestTable:
    """All residents of a lane. `limits.table_slots` of them at most."""

    def __init__(self, limits: LaneLimits, cache: KvCache) -> None:
        self._limits = limits
        self._cache = cache
        self._residents: dict[str, Resident] = {}
        self.pages = PagePool(limits.kv_pages)

    def __len__(self) -> int:
        return len(self._residents)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._residents.values())

    @property
    def free_slots(self) -> int:
        return self._limits.table_slots - len(self._residents)

    def find(self, request_id: str, attempt: int) -> Resident | None:
        resident = self._residents.get(request_id)
        return resident if resident is not None and resident.attempt == attempt else None

    def attempt_of(self, request_id: str) -> int | None:
        resident = self._residents.get(request_id)
        return None if resident is None else resident.attempt

    def admit(self, work: SequenceWork) -> None:
        """Give the request a place and pages for `work.reserve` positions; raises PageError. The
        caller has released an older attempt and checked for a place (see `admission`)."""
        assert work.sampling is not None
        assert work.request_id not in self._residents
        assert self.free_slots
        pages = self.pages.allocate(self._limits.pages_for(work.reserve))
        self._residents[work.request_id] = Resident(
            work.request_id, work.attempt, work.sampling, pages, self._cache.slots_of(pages)
        )

    def release(self, request_id: str) -> None:
        """The mirror image of `admit`; raises KeyError for a request that is not resident."""
        self.pages.release(self._residents.pop(request_id).pages)

    def abort(self, committed_step: int) -> None:
        """Back to what was true after `committed_step`."""
        unborn = [r.request_id for r in self._residents.values() if not r.go_back(committed_step)]
        for request_id in unborn:
            self.release(request_id)

    def held(self) -> list[Held]:
        return [Held(r.request_id, r.attempt, r.written) for r in self._residents.values()]

    def check_conserved(self) -> None:
        """Free and held pages are all pages, each once; raises AssertionError with the numbers."""
        held = sum(len(resident.pages) for resident in self._residents.values())
        assert held + self.pages.free == self.pages.total, (
            f"KV pages leaked: {held} held by {len(self)} requests + {self.pages.free} free "
            f"of {self.pages.total}"
        )
