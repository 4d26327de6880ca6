"""Durations, quantities and times: what is read, what is written, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from afd_operator.api.scalars import Duration, Quantity, format_duration, format_time, parse_duration

DURATION: TypeAdapter[timedelta] = TypeAdapter(Duration)
QUANTITY: TypeAdapter[int | str] = TypeAdapter(Quantity)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2),
        ("50ms", 0.05),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("0s", 0),
        ("1m1s1ms", 61.001),
        ("90m", 5400),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value", ["", "2", "s", "2 s", "-2s", "2d", "1e3s", "2s\n", "100000s", "1s1s1s1s1s", 2, 2.5, None, True]
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="is no duration"):
        DURATION.validate_python(value)


@given(st.integers(0, 99999 * 3_600_000))
def test_a_duration_written_is_the_one_read(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize("value", [4, 0, "4", "500m", "16Gi", "1.5", ".5", "2e3", "1E6", "100k"])
def test_a_quantity_is_passed_on_as_written(value: int | str) -> None:
    assert QUANTITY.validate_python(value) == value


@pytest.mark.parametrize("value", ["lots", "-1", "1 Gi", "Gi", "", 1.5, True, None, "1" * 33])
def test_what_is_no_quantity_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        QUANTITY.validate_python(value)


def test_a_time_is_written_in_utc_with_whole_seconds() -> None:
    east = timezone(timedelta(hours=2))
    assert format_time(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=east)) == "2026-01-02T01:04:05Z"
    assert format_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05Z"
