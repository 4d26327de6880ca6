"""What takes long says how far it is: a live display at a terminal, one line per task otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

NOTE_CHARACTERS = 60
"""Longer notes (module paths) are cut: the display stays one line a task."""


class Task:
    """A running task. `advance` counts up to the total it was made with; `note` shows what it is at."""

    def __init__(self, live: RichProgress | None, key: int | None):
        self._live, self._key = live, key

    def advance(self) -> None:
        if self._live is not None and self._key is not None:
            self._live.advance(self._key)

    def note(self, text: str) -> None:
        if self._live is not None and self._key is not None:
            self._live.update(self._key, note=text[:NOTE_CHARACTERS])


class Progress:
    """`with Progress("title") as p: with p.task("part", total=9) as t: t.advance()`; writes to stderr."""

    def __init__(self, title: str):
        self._title = title
        self._live: RichProgress | None = None

    def __enter__(self) -> Progress:
        print(self._title, file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            self._live = RichProgress(
                SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), BarColumn(),
                TextColumn("{task.fields[note]}"), console=Console(stderr=True),
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @contextmanager
    def task(self, name: str, total: int | None = None) -> Iterator[Task]:
        started = time.monotonic()
        key = self._live.add_task(name, total=total, note="") if self._live is not None else None
        if self._live is None:
            print(f"  {name} ...", file=sys.stderr, flush=True)
        yield Task(self._live, key)
        if self._live is not None and key is not None:
            self._live.update(key, total=1, completed=1, note="")
        if self._live is None:
            print(f"  {name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
