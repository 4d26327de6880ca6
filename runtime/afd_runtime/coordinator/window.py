"""What the parties measured of committed steps, and its summary over the last minute.

A lane's times arrive with the result that commits the step, an expert worker's just before or just
after. `Measuring` waits for the rest; a step whose rest never comes is forgotten, not guessed.

    T_a, T_e, T_c   means over parties and rounds (layer x microbatch) of one step, each on its own clock
    slack           (T_a - T_e) / T_a of one decode step
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from afd_runtime.protocol.messages import StepTimes
from afd_runtime.protocol.plan import Phase

WINDOW_S = 60.0
MOST_SAMPLES = 4096
MOST_OPEN = 16
"""Steps whose expert times are awaited; more than may ever be out at once."""


@dataclass(frozen=True, kw_only=True)
class StepMeasured:
    """One committed step. Times of a round are per layer and microbatch, one way, in seconds."""

    phase: Phase
    duration_s: float
    """From the later of its issue and the commit before it, to its commit."""
    attention_s: float
    ffn_s: float
    dispatch_s: float
    combine_s: float
    exposed_s: float
    """Waiting for experts beyond own work over the whole step, mean over lanes."""
    rows: dict[int, int]
    """Routed token rows by expert worker."""


@dataclass
class _Open:
    phase: Phase
    duration_s: float
    lanes: list[StepTimes]


class Measuring:
    """Joins what lanes and expert workers say of the same step."""

    def __init__(self, experts: int) -> None:
        self._experts = experts
        self._open: dict[int, _Open] = {}
        self._rows: dict[int, dict[int, StepTimes]] = {}

    def committed(
        self, step: int, phase: Phase, duration_s: float, lanes: list[StepTimes]
    ) -> StepMeasured | None:
        self._open[step] = _Open(phase, duration_s, lanes)
        return self._close(step)

    def expert(self, step: int, index: int, times: StepTimes) -> StepMeasured | None:
        self._rows.setdefault(step, {})[index] = times
        return self._close(step)

    def _close(self, step: int) -> StepMeasured | None:
        for waiting in (self._open, self._rows):
            while len(waiting) > MOST_OPEN:
                waiting.pop(min(waiting))
        opened, experts = self._open.get(step), self._rows.get(step, {})
        if opened is None or len(experts) < self._experts:
            return None
        del self._open[step], self._rows[step]
        lanes = opened.lanes
        return StepMeasured(
            phase=opened.phase,
            duration_s=opened.duration_s,
            attention_s=_round_s((times.compute_us, times.rounds) for times in lanes),
            ffn_s=_round_s((times.compute_us, times.rounds) for times in experts.values()),
            dispatch_s=_round_s((times.dispatch_us, times.rounds) for times in lanes),
            combine_s=_round_s(
                (max(0.0, times.transfer_us - times.dispatch_us), times.rounds) for times in lanes
            ),
            exposed_s=sum(times.waited_us for times in lanes) / len(lanes) / 1e6,
            rows={index: times.rows for index, times in experts.items()},
        )


def _round_s(sums: Iterable[tuple[float, int]]) -> float:
    """Seconds of one round, from each party's microseconds and rounds."""
    parts = list(sums)
    rounds = sum(count for _, count in parts)
    return sum(total_us for total_us, _ in parts) / rounds / 1e6 if rounds else 0.0


@dataclass(frozen=True)
class Slack:
    """(T_a - T_e) / T_a over the window; negative: the experts are exposed."""

    mean: float
    minimum: float
    p05: float


@dataclass
class Window:
    """The last minute: what `/status` and the gauges say of the present."""

    _steps: deque[tuple[float, StepMeasured]] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    _commits: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    """Moment, tokens, finished requests of each commit."""

    def step(self, now_s: float, step: StepMeasured) -> None:
        self._steps.append((now_s, step))

    def commit(self, now_s: float, tokens: int, finished: int) -> None:
        self._commits.append((now_s, tokens, finished))

    def _decodes(self, now_s: float) -> list[StepMeasured]:
        return [step for at, step in self._steps if now_s - at <= WINDOW_S and step.phase is Phase.DECODE]

    def step_time_s(self, now_s: float) -> float | None:
        """Mean of decode steps."""
        steps = self._decodes(now_s)
        return sum(step.duration_s for step in steps) / len(steps) if steps else None

    def slack(self, now_s: float) -> Slack | None:
        steps = [step for step in self._decodes(now_s) if step.attention_s > 0]
        if not steps:
            return None
        ordered = sorted(1 - step.ffn_s / step.attention_s for step in steps)
        return Slack(
            mean=1 - sum(step.ffn_s for step in steps) / sum(step.attention_s for step in steps),
            minimum=ordered[0],
            p05=ordered[len(ordered) // 20],
        )

    def tokens_per_s(self, now_s: float) -> float | None:
        """None when nothing was committed within the window."""
        return self._rate(now_s, [(at, tokens) for at, tokens, _ in self._commits])

    def finished_per_s(self, now_s: float) -> float:
        return self._rate(now_s, [(at, finished) for at, _, finished in self._commits]) or 0.0

    @staticmethod
    def _rate(now_s: float, counts: list[tuple[float, int]]) -> float | None:
        recent = [(at, count) for at, count in counts if now_s - at <= WINDOW_S]
        if not recent:
            return None
        return sum(count for _, count in recent) / max(1.0, now_s - recent[0][0])
