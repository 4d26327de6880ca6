"""Who counts what happens in the core; `metrics` does for the process, tests do for themselves."""

from __future__ import annotations

from typing import Protocol

from afd_runtime.coordinator.window import StepMeasured


class Observer(Protocol):
    def step(self, step: StepMeasured) -> None: ...
    def rejected(self, reason: str) -> None: ...
    def replayed(self, requests: int) -> None: ...
    def dropped(self, reason: str) -> None: ...
