"""Kubernetes Events of a deployment: one for each condition that changed, and none at rest.

They are told from the two statuses, the one before and the one just written, so they are as rare and as
deduplicated as the writes themselves. An event that cannot be posted is logged and forgotten.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from afd_operator.api.conditions import Condition, ConditionStatus, ConditionType
from afd_operator.api.deployment import API_VERSION, KIND
from afd_operator.api.status import AFDDeploymentStatus
from afd_operator.controller.api import EVENT, Api, ApiError, Json, Unreachable

_TOLD = (
    ConditionType.READY,
    ConditionType.STALLED,
    ConditionType.DOMAIN_SELECTED,
    ConditionType.DEGRADED,
    ConditionType.SPEC_ACTED_ON,
)
_ABNORMAL = (ConditionType.STALLED, ConditionType.DEGRADED)
_NOTE_LIMIT = 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Happening:
    """One event to be."""

    type: str
    reason: str
    note: str


def happenings(before: AFDDeploymentStatus, after: AFDDeploymentStatus) -> Iterator[Happening]:
    """What changed from one status to the next. A new deployment's first findings count as changes, except
    that nothing is wrong."""
    was = {c.type: c for c in before.conditions}
    for now in after.conditions:
        if now.type not in _TOLD or _same(was.get(now.type), now):
            continue
        good = (now.status is ConditionStatus.TRUE) != (now.type in _ABNORMAL)
        if good and now.type not in was and now.type in (*_ABNORMAL, ConditionType.SPEC_ACTED_ON):
            continue
        # Waiting and starting are on the way; only what needs somebody is a warning.
        warning = not good and now.type != ConditionType.READY
        note = f"{now.type} is {now.status}" + (f": {now.message}" if now.message else "")
        yield Happening("Warning" if warning else "Normal", now.reason, note[:_NOTE_LIMIT])


def _same(was: Condition | None, now: Condition) -> bool:
    return was is not None and (was.status, was.reason) == (now.status, now.reason)


async def post(api: Api, body: Json, happening: Happening, instance: str) -> None:
    """Post an event about the AFDDeployment `body`."""
    metadata = body["metadata"]
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:200]}.{uuid.uuid4().hex[:16]}",
            "namespace": metadata["namespace"],
        },
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": "afd.dev/operator",
        "reportingInstance": instance,
        "action": "Reconcile",
        "type": happening.type,
        "reason": happening.reason,
        "note": happening.note,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
    }
    try:
        await api.create(EVENT, event)
    except (ApiError, Unreachable) as error:
        logger.warning("event not posted", extra={"reason": happening.reason, "error": error})
