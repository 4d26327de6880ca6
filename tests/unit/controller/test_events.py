"""Which changes of a status are told as Kubernetes Events."""

from __future__ import annotations

import pytest

from afd_operator.api.conditions import Condition, ConditionType, condition
from afd_operator.api.status import AFDDeploymentStatus
from afd_operator.controller.events import Happening, happenings

READY, STALLED = ConditionType.READY, ConditionType.STALLED
SERVES = condition(READY, True, "UnitsServe", "1 of 1 units serve")
STARTS = condition(READY, False, "UnitsStarting", "0 of 1 units serve")
WHOLE = condition(ConditionType.DEGRADED, False, "AsSpecified")
BROKEN = condition(ConditionType.DEGRADED, True, "UnitsBroken", "pod x is gone")
NO_DOMAIN = condition(STALLED, True, "NoDomainLargeEnough", "needs 20 nodes")
ALL_FIELDS = condition(ConditionType.SPEC_ACTED_ON, True, "AllFields")
SLACK = condition(ConditionType.FFN_HIDDEN, True, "Hidden")

CASES = [
    ("nothing changed", [SERVES, WHOLE], [SERVES, WHOLE], []),
    (
        "only words changed",
        [STARTS],
        [STARTS.model_copy(update={"message": "other words"})],
        [],
    ),
    ("it serves", [STARTS], [SERVES], [("Normal", "UnitsServe", "Ready is True: 1 of 1 units serve")]),
    ("it does not yet", [], [STARTS], [("Normal", "UnitsStarting", "Ready is False: 0 of 1 units serve")]),
    ("all is well from the start", [], [WHOLE, ALL_FIELDS], []),
    ("something broke", [WHOLE], [BROKEN], [("Warning", "UnitsBroken", "Degraded is True: pod x is gone")]),
    ("it is mended", [BROKEN], [WHOLE], [("Normal", "AsSpecified", "Degraded is False")]),
    ("it is stuck", [], [NO_DOMAIN], [("Warning", "NoDomainLargeEnough", "Stalled is True: needs 20 nodes")]),
    ("what is measured is no event", [], [SLACK], []),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "told"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_told(before: list[Condition], after: list[Condition], told: list[tuple[str, str, str]]) -> None:
    found = happenings(AFDDeploymentStatus(conditions=before), AFDDeploymentStatus(conditions=after))
    assert list(found) == [Happening(*each) for each in told]


def test_a_note_fits_an_event() -> None:
    long = condition(STALLED, True, "Forbidden", "x" * 4000)
    (happening,) = happenings(AFDDeploymentStatus(), AFDDeploymentStatus(conditions=[long]))
    assert len(happening.note) == 1024
