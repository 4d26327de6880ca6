"""What all API models share: camelCase outside, snake_case inside, immutable, described, bounded.

Descriptions are the docstrings under the fields. Spec models refuse fields that they do not know: the
API server prunes those, so one that arrives here comes from a CRD newer than this operator, and to act
as if it were not there would be a lie. Status models ignore them: an older operator may read the status
of a newer one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from afd_operator.api.rules import Rule


class ApiModel(BaseModel):
    """One object of the API. `rules` are the rules between its fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="forbid",
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        reference = handler(core_schema)
        if cls.rules:
            schema = handler.resolve_ref_schema(reference)
            schema["x-kubernetes-validations"] = [rule.as_schema() for rule in cls.rules]
        return reference

    def dump(self) -> dict[str, Any]:
        """The object as Kubernetes writes it: JSON types, camelCase, absent where None."""
        return self.model_dump(mode="json", exclude_none=True)


class StatusModel(ApiModel):
    """One object of the status."""

    model_config = ConfigDict(extra="ignore")


class UpstreamModel(ApiModel):
    """A Kubernetes type of which only the named fields are ours; the rest passes through untouched and is
    judged by the API server when the pod is made."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})


def list_map(key: str, *, max_items: int, min_items: int = 0) -> Any:
    """A list whose items are told apart by `key` (camelCase): unique, and merged per item on apply."""
    return Field(
        min_length=min_items or None,
        max_length=max_items,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]},
    )


def bounded_map(*, max_items: int) -> Any:
    """A map of at most `max_items` keys: the API server refuses rules over an unbounded one as too costly."""
    return Field(max_length=max_items)
