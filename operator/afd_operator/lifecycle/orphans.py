"""Reservations whose deployment is gone: given back when the last pod of the unit is.

Owner references delete everything else of a deployment; a reservation lives in the operator's namespace,
where an owner reference cannot reach, and must outlive the pods anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from afd_operator.lifecycle.actions import Release
from afd_operator.lifecycle.observed import PodState
from afd_operator.placement.facts import UnitId
from afd_operator.placement.reservation import Reservation


def orphans(
    namespace: str,
    name: str,
    living_uid: str | None,
    reservations: Iterable[Reservation],
    pods: Iterable[PodState],
) -> tuple[Release, ...]:
    """What to release of former deployments called `namespace/name`.

    `living_uid` is that of the deployment which has the name now, or None; `pods` are all of that name.
    """
    occupied = {UnitId(pod.owner_uid, pod.unit) for pod in pods if pod.unit is not None}
    return tuple(
        Release(reservation)
        for reservation in reservations
        if (reservation.holder.namespace, reservation.holder.name) == (namespace, name)
        and reservation.holder.id.deployment_uid != living_uid
        and reservation.holder.id not in occupied
    )
