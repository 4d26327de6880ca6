"""Which expert worker owns which experts.

Experts are dealt out in contiguous runs of `ceil(experts / workers)`; when that does not divide, the
last worker owns fewer:

    8 experts, 3 workers   ->  [0 1 2] [3 4 5] [6 7]
    5 experts, 4 workers   ->  [0 1] [2 3] [4] []      refused: worker 3 would hold a GPU for nothing

Lanes and workers compute the same table from the same two counts, so it is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_runtime.models.checkpoint import ModelError


@dataclass(frozen=True)
class ExpertSplit:
    """Raises ModelError when a worker would own no expert."""

    experts: int
    workers: int

    def __post_init__(self) -> None:
        if self.experts < 1 or self.workers < 1:
            raise ModelError(f"{self.experts} experts over {self.workers} expert workers")
        idle = self.workers - -(-self.experts // self.per_worker)
        if idle:
            raise ModelError(
                f"{self.experts} experts over {self.workers} expert workers are {self.per_worker} each, "
                f"which leaves the last {idle} without any: use {self.workers - idle} expert workers "
                f"or a number that leaves each at least one"
            )

    @property
    def per_worker(self) -> int:
        return -(-self.experts // self.workers)

    def owned(self, worker: int) -> range:
        """The experts of `worker`, never empty; raises ModelError for a worker that does not exist."""
        if not 0 <= worker < self.workers:
            raise ModelError(f"expert worker {worker} of a unit with {self.workers}")
        first = worker * self.per_worker
        return range(first, min(first + self.per_worker, self.experts))
