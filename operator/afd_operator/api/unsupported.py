"""What of a spec this version does not act on. Never silence: the operator turns each entry into a condition
(`SpecActedOn` False) that names the field, and starts no unit where an entry blocks.

A feature arrives by deleting its line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from afd_operator.api.placement import Fabric, SchedulerBackend, Sharing
from afd_operator.api.policies import RestartBudget, UpdateStrategy, WorkerFailure
from afd_operator.api.runtime import Backend
from afd_operator.api.serving import KvCacheDtype
from afd_operator.api.shape import Choice
from afd_operator.api.spec import AFDDeploymentSpec


@dataclass(frozen=True)
class NotActedOn:
    """One field whose value changes nothing in this version, and what is done instead."""

    field: str
    why: str
    blocks: bool = False
    """Whether a unit started without it would be something else than what was asked for."""

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"


@dataclass(frozen=True)
class _Later:
    finding: NotActedOn
    asked_for: Callable[[AFDDeploymentSpec], bool]
    """Whether the spec asks for more than what this version does anyway."""


def _later(
    field: str, asked_for: Callable[[AFDDeploymentSpec], bool], why: str, *, blocks: bool = False
) -> _Later:
    return _Later(NotActedOn(f"spec.{field}", why, blocks), asked_for)


_TABLE = (
    _later(
        "model.source", lambda s: s.model.pvc is None,
        "only pvc://CLAIM/PATH can be read", blocks=True,
    ),
    _later(
        "model.kvCacheDtype", lambda s: s.model.kv_cache_dtype is not KvCacheDtype.AUTO,
        "the KV cache has the checkpoint's own element type",
    ),
    _later(
        "ratio.mode", lambda s: s.ratio.mode is Choice.AUTO,
        "the operator does not plan: give attention and expert", blocks=True,
    ),
    _later(
        "ratio.prefill", lambda s: bool(s.ratio.prefill),
        "every attention node does both prefill and decode",
    ),
    _later(
        "smBudget", lambda s: s.sm_budget.mode is Choice.FIXED,
        "the runtime sets no SMs aside",
    ),
    _later("slo", lambda s: s.slo is not None, "requests are admitted by capacity alone"),
    _later("workload", lambda s: s.workload is not None, "the operator does not plan"),
    _later(
        "placement.sharing", lambda s: s.placement.sharing is Sharing.SHARED,
        "each unit takes a domain of its own",
    ),
    _later(
        "placement.fabric", lambda s: s.placement.fabric is Fabric.COMPUTE_DOMAIN,
        "no ComputeDomain is made: activations travel by network",
    ),
    _later(
        "placement.scheduler.backend", lambda s: s.placement.scheduler.backend is SchedulerBackend.POD_GROUP,
        "units are placed by scheduling gates",
    ),
    _later("scaling", lambda s: s.scaling is not None, "the ratio stays as it is"),
    _later(
        "failurePolicy.attention", lambda s: s.failure_policy.attention is WorkerFailure.RESTART_UNIT,
        "a lost pod is replaced alone",
    ),
    _later(
        "failurePolicy.expert", lambda s: s.failure_policy.expert is WorkerFailure.RESTART_UNIT,
        "a lost pod is replaced alone",
    ),
    _later(
        "failurePolicy.restartBudget", lambda s: s.failure_policy.restart_budget != RestartBudget(),
        "failed pods are replaced without end",
    ),
    _later(
        "update.strategy", lambda s: s.update.strategy is UpdateStrategy.BLUE_GREEN_DOMAIN,
        "units are replaced in place, one at a time",
    ),
    _later(
        "runtime.backend", lambda s: s.runtime.backend is Backend.SGLANG,
        "attention is served by the native runtime only", blocks=True,
    ),
)  # fmt: skip


def not_acted_on(spec: AFDDeploymentSpec) -> list[NotActedOn]:
    """The fields of `spec` that ask for what this version does not do, in the order of the API."""
    return [later.finding for later in _TABLE if later.asked_for(spec)]
