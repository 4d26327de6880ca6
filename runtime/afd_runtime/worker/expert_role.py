"""An expert worker as a process: a listener for its life, one endpoint and one loop an epoch.

It serves rounds as they come and needs nothing but their headers; ExpertStep only tells it when a
step is complete and must be reported.
"""

from __future__ import annotations

import logging

import msgspec

from afd_runtime.experts.loop import ExpertLoop
from afd_runtime.models.split import ExpertSplit
from afd_runtime.models.stages import ExpertStage
from afd_runtime.protocol.messages import ExpertResult, Register, Table, ToWorker
from afd_runtime.protocol.plan import ExpertStep
from afd_runtime.transport.errors import EndpointClosed, TransportError
from afd_runtime.transport.round import WireFormat
from afd_runtime.transport.tcp_expert import TcpExpert, TcpListener
from afd_runtime.worker.loading import dtype_of, opened, wire_format
from afd_runtime.worker.membership import data_epoch
from afd_runtime.worker.process import Worker
from afd_unit.identity import Member, Role

log = logging.getLogger(__name__)


class ExpertRole:
    """See `process.RoleLoop`."""

    def __init__(
        self, worker: Worker, stage: ExpertStage, wire: WireFormat, checkpoint: str, listener: TcpListener
    ) -> None:
        self._worker = worker
        self._stage = stage
        self._wire = wire
        self._checkpoint = checkpoint
        self._listener = listener
        self._endpoint: TcpExpert | None = None
        self._loop: ExpertLoop | None = None

    @property
    def connected(self) -> bool:
        return self._loop is not None

    def introduce(self, register: Register) -> Register:
        host = self._worker.settings.host
        address = f"[{host}]:{self._listener.port}" if ":" in host else f"{host}:{self._listener.port}"
        return msgspec.structs.replace(register, checkpoint=self._checkpoint, data_address=address)

    def interrupt(self, ended_epoch: int) -> None:
        if (endpoint := self._endpoint) is not None and endpoint.epoch <= ended_epoch:
            endpoint.close()

    def wake(self) -> None:
        if (endpoint := self._endpoint) is not None:
            endpoint.wake()

    def enter(self, table: Table) -> None:
        settings = self._worker.settings
        epoch = data_epoch(table, settings.unit.expert_workers)
        if epoch is None:
            return
        endpoint = TcpExpert(
            self._wire,
            epoch,
            settings.member.index,
            timeout_s=settings.round_timeout_s,
            lost=lambda error: self._fault(table.epoch, error),
        )
        self._endpoint = endpoint
        if table.epoch <= self._worker.ended_epoch:
            return
        self._loop = ExpertLoop(self._stage, endpoint)
        self._listener.serve(endpoint)

    def leave(self, committed_step: int) -> None:
        self._listener.serve(None)
        self._endpoint = self._loop = None

    def act(self, message: ToWorker) -> None:
        if not isinstance(message, ExpertStep) or not self._worker.membership.acts(
            message.epoch, "expert-step"
        ):
            return
        self._worker.seen_step = max(self._worker.seen_step, message.step)
        if message.bucket > self._wire.max_rows:
            text = (
                f"step {message.step}: bucket {message.bucket}, the buffers hold {self._wire.max_rows} rows"
            )
            self._worker.fault(message.epoch, message.step, None, text)
        elif self._loop is not None:
            self._loop.announce(message)
            self._report(self._loop)

    @property
    def serves(self) -> bool:
        return self._loop is not None

    def serve(self, timeout_s: float) -> None:
        loop, endpoint = self._loop, self._endpoint
        assert loop is not None
        assert endpoint is not None
        try:
            if loop.serve(timeout_s):
                self._report(loop)
        except EndpointClosed:
            # The command that ended the epoch is in the inbox.
            self._loop = None
        except TransportError as error:
            self._loop = None
            self._fault(endpoint.epoch, error)

    def _report(self, loop: ExpertLoop) -> None:
        for step, times in loop.complete():
            self._worker.say(
                ExpertResult(
                    epoch=step.epoch,
                    step=step.step,
                    incarnation=self._worker.membership.incarnation,
                    times=times,
                    sent_ns=step.sent_ns,
                )
            )

    def _fault(self, epoch: int, error: TransportError) -> None:
        peer = error.peer
        unit = self._worker.settings.member.unit
        self._worker.fault(
            epoch,
            self._worker.seen_step,
            None if peer is None else Member(unit, Role.ATTENTION, peer),
            str(error),
        )


def load(worker: Worker) -> ExpertRole:
    """Read this worker's slice of the experts and open its port; raises ModelError or OSError."""
    settings = worker.settings
    with opened(settings) as (checkpoint, family, shape):
        owned = ExpertSplit(shape.experts, settings.unit.expert_workers).owned(settings.member.index)
        stage = family.load_experts(checkpoint, owned, dtype_of(settings))
        listener = TcpListener(settings.host, settings.data_port)
        return ExpertRole(worker, stage, wire_format(settings, shape), checkpoint.digest, listener)
