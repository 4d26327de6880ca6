"""A lane as a process: commands in, results out, one endpoint an epoch."""

from __future__ import annotations

import logging

import msgspec

from afd_runtime.attention.admission import PlanRefused
from afd_runtime.attention.lane import Lane
from afd_runtime.attention.limits import size_lane
from afd_runtime.models.split import ExpertSplit
from afd_runtime.protocol.messages import Held, LaneResult, Register, Table, ToWorker
from afd_runtime.protocol.plan import StepPlan
from afd_runtime.transport.errors import EndpointClosed, TransportError
from afd_runtime.transport.round import WireFormat
from afd_runtime.transport.tcp_lane import TcpLane
from afd_runtime.worker.loading import dtype_of, opened, wire_format
from afd_runtime.worker.membership import data_epoch
from afd_runtime.worker.process import Worker
from afd_unit.identity import Member, Role

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0


class LaneRole:
    """See `process.RoleLoop`."""

    def __init__(self, worker: Worker, lane: Lane, wire: WireFormat, checkpoint: str) -> None:
        self._worker = worker
        self._lane = lane
        self._wire = wire
        self._checkpoint = checkpoint
        self._endpoint: TcpLane | None = None
        self._held: list[Held] = []
        """As of the last command: the control thread must not walk the table while it changes."""
        self._connected = False

    @property
    def connected(self) -> bool:
        return self._connected

    def introduce(self, register: Register) -> Register:
        return msgspec.structs.replace(
            register, checkpoint=self._checkpoint, capacity=self._lane.capacity, held=self._held
        )

    def interrupt(self, ended_epoch: int) -> None:
        if (endpoint := self._endpoint) is not None and endpoint.epoch <= ended_epoch:
            endpoint.close()

    def wake(self) -> None:
        """A lane only waits for its inbox."""

    def enter(self, table: Table) -> None:
        settings = self._worker.settings
        epoch = data_epoch(table, settings.unit.expert_workers)
        if epoch is None:
            log.info("waiting", extra={"epoch": table.epoch, "reason": "an expert worker has no place yet"})
            return
        endpoint = TcpLane(
            self._wire,
            epoch,
            settings.member.index,
            timeout_s=settings.round_timeout_s,
            lost=lambda error: self._fault(table.epoch, self._worker.seen_step, error),
        )
        self._endpoint = endpoint
        if table.epoch <= self._worker.ended_epoch:
            return
        try:
            endpoint.connect(CONNECT_TIMEOUT_S)
        except EndpointClosed:
            return
        except TransportError as error:
            self._fault(table.epoch, self._worker.seen_step, error)
            return
        self._lane.attach(endpoint)
        self._connected = True

    def leave(self, committed_step: int) -> None:
        self._connected = False
        self._lane.attach(None)
        self._endpoint = None
        self._lane.abort(committed_step)
        self._held = self._lane.held()

    def act(self, message: ToWorker) -> None:
        if not isinstance(message, StepPlan) or not self._worker.membership.acts(message.epoch, "step-plan"):
            return
        self._worker.seen_step = max(self._worker.seen_step, message.step)
        # Plans that were on their way when the epoch ended: the command that ended it comes behind them.
        if not self._connected or message.epoch <= self._worker.ended_epoch:
            return
        try:
            output = self._lane.run(message)
        except EndpointClosed:
            self._connected = False
        except TransportError as error:
            self._fault(message.epoch, message.step, error)
            self._connected = False
        except PlanRefused as error:
            self._worker.fault(message.epoch, message.step, None, str(error))
            self._connected = False
        else:
            self._held = self._lane.held()
            self._worker.say(
                LaneResult(
                    epoch=message.epoch,
                    step=message.step,
                    incarnation=self._worker.membership.incarnation,
                    sampled=output.sampled,
                    free_pages=self._lane.table.pages.free,
                    free_slots=self._lane.table.free_slots,
                    times=output.times,
                    sent_ns=message.sent_ns,
                )
            )

    @property
    def serves(self) -> bool:
        return False

    def serve(self, timeout_s: float) -> None:
        """All of a lane's work comes by command."""

    def _fault(self, epoch: int, step: int, error: TransportError) -> None:
        peer = error.peer
        unit = self._worker.settings.member.unit
        self._worker.fault(epoch, step, None if peer is None else Member(unit, Role.EXPERT, peer), str(error))


def load(worker: Worker) -> LaneRole:
    """Read the attention side of the checkpoint; raises ModelError or LimitsError."""
    settings = worker.settings
    with opened(settings) as (checkpoint, family, shape):
        split = ExpertSplit(shape.experts, settings.unit.expert_workers)
        dtype = dtype_of(settings)
        limits = size_lane(
            shape,
            context_length=settings.unit.model.context_length,
            kv_bytes=settings.kv_bytes,
            element_bytes=dtype.itemsize,
            page_tokens=settings.page_tokens,
            table_slots=settings.table_slots,
            max_rows=settings.max_rows,
        )
        lane = Lane(family.load_attention(checkpoint, dtype), limits, split, worker.life.beat)
        return LaneRole(worker, lane, wire_format(settings, shape), checkpoint.digest)
