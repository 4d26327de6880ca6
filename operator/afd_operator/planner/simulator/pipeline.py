"""One decode step, event by event: the check of `step.step_time`, and of what it leaves out.

A microbatch of a lane goes round attention -> link -> experts -> link, once per layer. A lane attends
to one microbatch at a time, oldest layer first. The experts run a microbatch of a layer when the last
lane's rows are there: ranks of one layer finish together because combine needs all of them. The link is a
delay (full duplex, pushed in place), not a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from afd_operator.planner.simulator.loop import Loop
from afd_operator.planner.simulator.station import Station

LaneTime = Callable[[int, int, int], float]
"""(lane, layer, microbatch) -> attention time."""
ExpertTime = Callable[[int, int], float]
"""(layer, microbatch) -> expert time."""


@dataclass(frozen=True)
class StepTrace:
    """What one step did; times in the unit of the inputs."""

    time: float
    lane_busy: float
    """Mean share of the step that a lane attended."""
    expert_busy: float
    events: int


def simulate_step(
    *, lanes: int, layers: int, microbatches: int, attention: LaneTime, experts: ExpertTime, transfer: float
) -> StepTrace:
    """Run one step from an empty pipeline to the last result."""
    loop = Loop()
    lane = [Station(loop) for _ in range(lanes)]
    ranks = Station(loop)
    arrived = [[0] * microbatches for _ in range(layers)]

    def attend(n: int, layer: int, mb: int) -> None:
        lane[n].submit(attention(n, layer, mb), lambda: loop.after(transfer, lambda: dispatched(layer, mb)))

    def dispatched(layer: int, mb: int) -> None:
        arrived[layer][mb] += 1
        if arrived[layer][mb] == lanes:
            ranks.submit(experts(layer, mb), lambda: loop.after(transfer, lambda: combined(layer, mb)))

    def combined(layer: int, mb: int) -> None:
        if layer + 1 < layers:
            for n in range(lanes):
                attend(n, layer + 1, mb)

    for mb in range(microbatches):
        for n in range(lanes):
            attend(n, 0, mb)
    loop.run()
    return StepTrace(
        loop.now, sum(s.busy_time for s in lane) / lanes / loop.now, ranks.busy_time / loop.now, loop.events
    )
