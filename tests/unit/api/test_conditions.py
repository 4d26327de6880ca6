"""Conditions: computed from now; only the time of the last change is remembered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from afd_operator.api.conditions import MESSAGE_LIMIT, ConditionStatus, ConditionType, carry_over, condition

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(hours=1)


def test_the_time_moves_only_with_the_status() -> None:
    before = carry_over([], [condition(ConditionType.READY, False, "Starting")], generation=1, now=THEN)
    same = carry_over(
        before, [condition(ConditionType.READY, False, "Placing", "else")], generation=2, now=NOW
    )
    turned = carry_over(before, [condition(ConditionType.READY, True, "AllServe")], generation=2, now=NOW)
    assert [c.last_transition_time for c in (before[0], same[0], turned[0])] == [THEN, THEN, NOW]
    assert (same[0].reason, same[0].observed_generation) == ("Placing", 2)


def test_the_same_findings_give_the_same_conditions() -> None:
    found = [
        condition(ConditionType.READY, True, "AllServe"),
        condition(ConditionType.FFN_HIDDEN, None, "NoSteps"),
    ]
    before = carry_over([], found, generation=1, now=THEN)
    assert carry_over(before, found, generation=1, now=NOW) == before


def test_what_is_not_found_any_more_is_gone() -> None:
    before = carry_over([], [condition(ConditionType.STALLED, True, "NoDomain")], generation=1, now=THEN)
    assert carry_over(before, [], generation=1, now=NOW) == []


def test_not_knowing_is_a_status_of_its_own() -> None:
    assert condition(ConditionType.FFN_HIDDEN, None, "NoSteps").status is ConditionStatus.UNKNOWN


def test_a_message_past_the_limit_is_cut_and_looks_cut() -> None:
    found = condition(ConditionType.READY, False, "Long", "x" * (MESSAGE_LIMIT + 1))
    assert len(found.message) == MESSAGE_LIMIT
    assert found.message.endswith(" ...")


def test_a_condition_is_written_as_kubernetes_writes_it() -> None:
    (found,) = carry_over([], [condition(ConditionType.READY, True, "AllServe")], generation=3, now=THEN)
    assert found.dump() == {
        "type": "Ready",
        "status": "True",
        "reason": "AllServe",
        "message": "",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
