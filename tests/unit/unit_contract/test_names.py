"""Children's names are legal and distinct for every legal deployment name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afd_unit import names
from afd_unit.identity import Role, member_index, pod_of

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = st.from_regex(
    r"\A[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}\Z"
).filter(lambda name: len(name) <= 253)


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        ("demo", "demo"),
        ("a" * names.MAX_STEM, "a" * names.MAX_STEM),
        ("0day", "afd-0day-1f91b0c2"),
        ("qwen3.235b", "qwen3-235b-8e1b8d1c"),
        ("demo-coords", "demo-coords-00000000"),
        ("demo-0-coord", "demo-0-coord-00000000"),
        ("demo-0123abcd", "demo-0123abcd-00000000"),
    ],
)
def test_stem(deployment: str, expected: str) -> None:
    got = names.stem(deployment)
    if got == deployment:
        assert got == expected
    else:
        assert re.fullmatch(re.escape(expected[:-8]) + "[0-9a-f]{8}", got)


@given(SUBDOMAIN, st.integers(0, 999), st.integers(0, 9999))
def test_every_name_is_a_service_name(deployment: str, unit: int, index: int) -> None:
    made = [
        names.unit(deployment, unit),
        names.pod(deployment, unit, Role.ATTENTION, index),
        names.pod(deployment, unit, Role.EXPERT, index),
        names.coordinator(deployment, unit),
        names.coordinators(deployment),
        names.gateway(deployment),
        names.service(deployment),
    ]
    for name in made:
        assert LABEL.fullmatch(name), name
        assert len(name) <= names.MAX_LABEL, name
    assert len(set(made)) == len(made)


@given(SUBDOMAIN, SUBDOMAIN)
def test_two_deployments_never_share_a_stem(one: str, other: str) -> None:
    assert (names.stem(one) == names.stem(other)) == (one == other)


@given(SUBDOMAIN)
def test_no_deployment_is_named_like_another_ones_service(deployment: str) -> None:
    for made in (names.coordinators(deployment), names.coordinator(deployment, 0), names.stem(deployment)):
        if made != deployment:
            assert names.service(made) != made


@given(st.integers(0, 500), st.integers(1, 8), st.data())
def test_member_index_round_trips(pod_index: int, gpus: int, data: st.DataObject) -> None:
    device = data.draw(st.integers(0, gpus - 1))
    assert pod_of(member_index(pod_index, device, gpus), gpus) == (pod_index, device)


def test_a_device_that_the_pod_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="device 4 is not one of the 4 GPUs"):
        member_index(0, 4, 4)
