"""The CRD says what the models say: structure, defaults, descriptions, and the committed copies."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests import generated
from tests.unit.api.specs import FULL, GOOD, MINIMAL, Good, patched
from tests.unit.api.structure import faults, with_defaults

from afd_operator.api import crd
from afd_operator.api.base import ApiModel, list_map
from afd_operator.api.load import parse
from afd_operator.api.rules import Rule
from afd_operator.api.scalars import Duration, Quantity
from afd_operator.api.schema import structural
from afd_unit import names
from afd_unit.identity import Role

SCHEMA = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]


@pytest.mark.parametrize("path", generated.files())
def test_what_is_committed_is_what_the_models_say(path: str) -> None:
    committed = (generated.ROOT / path).read_text()
    assert committed == generated.files()[path], f"{path} is stale: run `make generate`"


@pytest.mark.parametrize(("path", "schema"), [("spec", SPEC), ("status", STATUS)])
def test_the_schema_is_structural_bounded_and_described(path: str, schema: dict[str, Any]) -> None:
    assert list(faults(schema, path)) == []


def test_the_checker_sees_what_pydantic_would_have_emitted() -> None:
    class Plain(BaseModel):
        a: int | None = None
        b: Annotated[float, Field(gt=0)] = 1.0

    assert {"x.a: anyOf is not allowed", "x.b: exclusiveMinimum is a number", "x.a: no description"} <= set(
        faults(Plain.model_json_schema(), "x")
    )


@pytest.mark.parametrize(
    "case", [*GOOD, Good("minimal", {}), Good("full", FULL["spec"])], ids=lambda case: case.name
)
def test_the_api_server_fills_in_the_defaults_of_the_models(case: Good) -> None:
    """An object read back with server-side defaults is the object that the models made of the bare one."""
    bare = patched(case.patch)
    assert parse({**bare, "spec": with_defaults(bare["spec"], SPEC)}) == parse(bare)


def test_a_default_is_not_noise() -> None:
    """Defaults are stored with every object, so nothing is filled in that means nothing."""

    def empties(value: Any, path: str) -> list[str]:
        if isinstance(value, dict) and value:
            return [found for name, part in value.items() for found in empties(part, f"{path}.{name}")]
        return [path] if value in ({}, [], "", None) else []

    assert empties(with_defaults(MINIMAL["spec"], SPEC), "spec") == []


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(0, 1000), st.sampled_from(["Exclusive", "Shared"]))
def test_defaulting_leaves_what_is_set(microbatches: int, units: int, sharing: str) -> None:
    written = {"microbatches": microbatches, "units": units, "placement": {"sharing": sharing}}
    stored = with_defaults(patched(written)["spec"], SPEC)
    assert (stored["microbatches"], stored["units"]) == (microbatches, units)
    assert stored["placement"] == {**with_defaults({}, SPEC["properties"]["placement"]), "sharing": sharing}


def test_a_status_has_no_defaults() -> None:
    """The operator writes it whole; a default would be a claim that nobody made."""
    assert "default" not in str(crd.without_defaults(STATUS).keys())
    assert crd.without_defaults(STATUS) == STATUS


def test_subresources_and_columns_point_at_fields_that_exist() -> None:
    version = crd.definition()["spec"]["versions"][0]
    scale = version["subresources"]["scale"]
    paths = [*scale.values(), *(column["jsonPath"] for column in version["additionalPrinterColumns"])]
    for path in paths:
        at: dict[str, Any] = SCHEMA
        for part in path.removeprefix(".").split("[")[0].split("."):
            if part == "metadata":
                break
            assert part in at["properties"], path
            at = at["properties"][part]


def test_names_and_columns() -> None:
    spec = crd.definition()["spec"]
    assert spec["names"]["shortNames"] == ["afd"]
    columns = spec["versions"][0]["additionalPrinterColumns"]
    assert [c["name"].upper() for c in columns if not c["priority"]] == [
        "READY", "RATIO", "DOMAIN", "STEP", "SLACK", "AGE",
    ]  # fmt: skip


def test_the_largest_legal_counts_fit_the_longest_child_name() -> None:
    units, nodes = (
        SPEC["properties"]["units"]["maximum"],
        SPEC["properties"]["ratio"]["properties"]["attention"]["maximum"],
    )
    longest = names.pod("x" * names.MAX_STEM, units - 1, Role.ATTENTION, nodes - 1)
    assert len(longest) <= names.MAX_LABEL


def test_no_line_of_the_crd_is_helm_syntax() -> None:
    assert "{{" not in crd.render()


def test_rendering_is_the_same_text_each_time_and_reads_back() -> None:
    assert crd.render() == crd.render()
    assert yaml.safe_load(crd.render()) == crd.definition()


# ---- the emitter by itself: one obstacle each ----


class Colour(StrEnum):
    """Which colour."""

    RED = "red"
    """Like a fire."""
    BLUE = "blue"


class Inner(ApiModel):
    """Inner."""

    rules = (Rule(cel="self.title != ''", holds=lambda i: i.title != "", field="title", message="is empty"),)
    title: Annotated[str, Field(max_length=9)] = "t"
    """A field that is called like a keyword."""


class Outer(ApiModel):
    """Outer."""

    maybe: Annotated[int, Field(gt=0, lt=10)] | None = None
    """Optional."""
    inner: Inner = Inner()
    """An object with rules."""
    colour: Colour = Colour.RED
    """Colour."""
    wait: Duration = timedelta(minutes=90)
    """Duration."""
    size: Quantity = 3
    """Quantity."""
    things: Annotated[list[Inner], list_map("title", max_items=2)] = []  # noqa: RUF012  (pydantic copies it)
    """A list-map."""
    big: Annotated[int, Field(le=2**40)] = 1
    """Past 32 bits."""


FIELDS = structural(Outer)["properties"]


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (
            "maybe",
            {
                "description": "Optional.", "type": "integer", "format": "int32",
                "minimum": 0, "exclusiveMinimum": True, "maximum": 10, "exclusiveMaximum": True,
            },
        ),
        (
            "colour",
            {
                "description": "Colour. `red`: Like a fire.", "type": "string", "default": "red",
                "enum": ["red", "blue"],
            },
        ),
    ],
)  # fmt: skip
def test_a_field_becomes(field: str, schema: dict[str, Any]) -> None:
    assert FIELDS[field] == schema


def test_an_object_with_rules_has_a_default_that_keeps_them() -> None:
    """The API server checks a default against the rules before it fills in the parts."""
    assert FIELDS["inner"]["default"] == {"title": "t"}
    assert FIELDS["inner"]["x-kubernetes-validations"] == [
        {"rule": "self.title != ''", "message": "is empty", "fieldPath": ".title"}
    ]


def test_a_duration_is_text_and_a_quantity_either() -> None:
    assert (FIELDS["wait"]["type"], FIELDS["wait"]["default"]) == ("string", "1h30m")
    assert "type" not in FIELDS["size"]
    assert FIELDS["size"]["x-kubernetes-int-or-string"]


def test_a_list_map_keeps_its_key_and_an_empty_default_goes() -> None:
    assert FIELDS["things"]["x-kubernetes-list-map-keys"] == ["title"]
    assert "default" not in FIELDS["things"]


def test_numbers_past_32_bits_say_so() -> None:
    assert FIELDS["big"]["format"] == "int64"
