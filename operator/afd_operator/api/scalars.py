"""The scalar types of the API: names, durations, quantities. Patterns are in the syntax that RE2 (the API
server) and Rust's regex (pydantic) share, anchored at both ends."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"

SubdomainName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
"""Name of most objects (RFC 1123 subdomain)."""
LabelName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
"""Name of a volume (RFC 1123 label)."""
LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)]
"""Qualified name: an optional DNS prefix of 253 characters, a slash, a name of 63."""
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]

# ---- durations: "2s", "50ms", "1h30m" ----

DURATION = r"^([0-9]{1,5}(\.[0-9]{1,3})?(ms|s|m|h)){1,4}$"
"""Five digits of hours, four times, are 45 years; Go's durations, which CEL computes with, end at 292."""
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(value: object) -> timedelta:
    """Text like 1h30m as a timedelta. Raises ValueError for anything else that is not a timedelta already."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or len(value) > 32 or not re.fullmatch(DURATION[1:-1], value):
        raise ValueError(f"{value!r} is no duration: write it like 50ms, 2s, 1h or 1h30m")
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value)))


def format_duration(value: timedelta) -> str:
    """The mirror image of `parse_duration`, in the largest units that fit: 90 minutes are 1h30m."""
    rest_ms = round(value.total_seconds() * 1000)
    parts = []
    for unit, length_ms in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest_ms = divmod(rest_ms, length_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 32, "pattern": DURATION}),
]
"""A Go duration of hours, minutes, seconds and milliseconds."""

# ---- quantities: "500m", "16Gi", 4 ----

_QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|Ki|[MGTPE]i?|[eE][-+]?[0-9]+)?$"


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a quantity: a whole number or text like 500m or 16Gi")
    if isinstance(value, str) and (len(value) > 32 or not re.fullmatch(_QUANTITY[1:-1], value)):
        raise ValueError(f"{value!r} is no quantity: write it like 4, 500m or 16Gi")
    return value


Quantity = Annotated[
    Any,
    AfterValidator(_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 32, "pattern": _QUANTITY}),
]
"""An amount of a resource, not negative."""

# ---- points in time ----


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes `metav1.Time`."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 64}),
]
