"""`parse`: what the API server stores becomes a model; what cannot be acted on becomes one readable error."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.api.specs import BAD, FULL, GOOD, MINIMAL, Bad, Good, patched, template

from afd_operator.api.load import InvalidDeployment, parse
from afd_operator.api.serving import PvcSource


def fields(obj: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidDeployment) as caught:
        parse(obj)
    return [violation.field for violation in caught.value.violations]


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_a_good_spec_is_read(case: Good) -> None:
    parse(patched(case.patch))


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case.field}: {case.name}")
def test_a_bad_spec_is_refused_again_naming_the_field(case: Bad) -> None:
    """Objects stored before a rule existed reach the operator without the API server's check."""
    assert case.field in fields(patched(case.patch))


def test_a_minimal_spec_is_one_unit_of_one_and_one() -> None:
    spec = parse(MINIMAL).spec
    assert (spec.units, spec.ratio.attention, spec.ratio.expert, spec.microbatches) == (1, 1, 1, 2)


def test_the_full_spec_comes_back_as_it_was_written() -> None:
    assert parse(FULL).dump()["spec"] == {**FULL["spec"], "ratio": {"mode": "Fixed", **FULL["spec"]["ratio"]},
        "smBudget": {"mode": "Fixed", **FULL["spec"]["smBudget"]},
        "placement": with_empty_values(FULL["spec"]["placement"]),
        "runtime": parse(FULL).spec.runtime.dump()}  # fmt: skip


def with_empty_values(placement: dict[str, Any]) -> dict[str, Any]:
    """A requirement without values is one with an empty list of them."""
    selector = placement["domainSelector"]
    expressions = [{"values": [], **expression} for expression in selector["matchExpressions"]]
    return {**placement, "domainSelector": {**selector, "matchExpressions": expressions}}


def test_upstream_types_pass_through_untouched() -> None:
    spec = parse(FULL).spec.runtime.pod_template.spec
    written = FULL["spec"]["runtime"]["podTemplate"]["spec"]
    assert [volume.dump() for volume in spec.volumes] == written["volumes"]
    assert [variable.dump() for variable in spec.containers[0].env] == written["containers"][0]["env"]
    assert spec.containers[0].volume_mounts[0].dump() == written["containers"][0]["volumeMounts"][0]


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = patched({"ratio": {"attention": 2, "expert": 1, "prefill": 2}, "slo": {"percentile": 90}})
    assert fields(wrong) == ["spec.ratio.prefill", "spec.slo.ttft"]
    with pytest.raises(
        InvalidDeployment, match=r"spec\.ratio\.prefill: must be less .*; spec\.slo\.ttft: give"
    ):
        parse(wrong)


def test_a_field_of_a_newer_crd_is_not_passed_over_in_silence() -> None:
    with pytest.raises(InvalidDeployment, match=r"spec\.warpDrive: is not known to this version"):
        parse(patched({"warpDrive": True}))


@pytest.mark.parametrize("key", ["with blank", "a/b/c", "/slash", f"{'a' * 254}/b", "x" * 64, ""])
def test_a_label_key_that_no_pod_could_carry_is_refused(key: str) -> None:
    """A schema cannot bound the keys of a map, so only this judge looks at them."""
    assert fields(patched(template(nodeSelector={key: "x"}))) == [
        "spec.runtime.podTemplate.spec.nodeSelector"
    ]


def test_the_longest_legal_label_key_is_taken() -> None:
    parse(patched(template(nodeSelector={f"{'a' * 253}/{'b' * 63}": "x"})))


@pytest.mark.parametrize(
    "status", [{"unitStatuses": [{"unit": 0, "stage": "Dreaming"}]}, {"units": "many"}, None, 3]
)
def test_a_status_that_cannot_be_read_never_stops_a_spec(status: object) -> None:
    """Written by another version of the operator; it is computed anew anyway."""
    assert parse({**MINIMAL, "status": status}).status.unit_statuses == []


def test_a_status_is_read_past_fields_of_a_newer_operator() -> None:
    status = {"units": 2, "mood": "fine", "conditions": [{"type": "Ready", "status": "True", "reason": "Ok"}]}
    assert parse({**MINIMAL, "status": status}).status.conditions[0].status == "True"


@pytest.mark.parametrize(
    ("source", "pvc"),
    [
        ("pvc://models/qwen/235b", PvcSource("models", "qwen/235b")),
        ("pvc://models", PvcSource("models", "")),
        ("pvc://models/", PvcSource("models", "")),
        ("hf://Qwen/Qwen3", None),
    ],
)
def test_source(source: str, pvc: PvcSource | None) -> None:
    assert parse(patched({"model": {"source": source}})).spec.model.pvc == pvc


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a nested value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in parts for found in paths(part, (*path, key)))]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(paths(FULL)[1:]), json_values)
def test_whatever_stands_in_a_field_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    """Nothing that JSON can hold makes `parse` fail in any other way."""
    obj = copy.deepcopy(FULL)
    at: Any = obj
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with suppress(InvalidDeployment):
        parse(obj)
