"""From results of a step to its measurements: for the observer one by one, for the present a window."""

from __future__ import annotations

from afd_runtime.coordinator.observer import Observer
from afd_runtime.coordinator.steps import Step
from afd_runtime.coordinator.window import Measuring, StepMeasured, Window
from afd_runtime.protocol.messages import ExpertResult


class Meter:
    def __init__(self, experts: int, observer: Observer) -> None:
        self.window = Window()
        self._measuring = Measuring(experts)
        self._observer = observer
        self._last_commit_s = 0.0

    def committed(self, step: Step, *, tokens: int, finished: int, now_s: float) -> None:
        """A step that ran behind another has taken the time since that one's commit."""
        self.window.commit(now_s, tokens, finished)
        duration_s = now_s - max(step.issued_s, self._last_commit_s)
        self._last_commit_s = now_s
        if step.has_work:
            times = [result.times for result in step.results.values()]
            self._take(self._measuring.committed(step.number, step.phase, duration_s, times), now_s)

    def expert(self, index: int, result: ExpertResult, now_s: float) -> None:
        self._take(self._measuring.expert(result.step, index, result.times), now_s)

    def _take(self, measured: StepMeasured | None, now_s: float) -> None:
        if measured is not None:
            self.window.step(now_s, measured)
            self._observer.step(measured)
