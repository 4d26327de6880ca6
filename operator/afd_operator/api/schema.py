"""Structural schemas (apiextensions.k8s.io/v1) from pydantic models.

Kubernetes accepts a part of OpenAPI 3.0, pydantic writes JSON Schema 2020-12. What becomes of it:

    pydantic                          structural schema
    $ref into $defs                   inlined; keys beside the reference win
    anyOf [T, null], default null     T, and not required: there is no null
    const                             enum of one
    exclusiveMinimum: 0               minimum: 0, exclusiveMinimum: true
    additionalProperties: false       left out: unknown fields are pruned
    additionalProperties: true        left out: beside it stands x-kubernetes-preserve-unknown-fields
    default of a whole object         only what differs from its parts' own defaults, often {}: the API server
                                      fills parts in, so a part's default is written down in one place
    default that is empty             left out where it fills nothing in: an absent list or map is an empty
                                      one, and objects are stored as short as they were written
    title                             left out
    integer                           with format, lists with x-kubernetes-list-type

Meanings of enum members (the docstrings under them) are added to the description of fields, so that
`kubectl explain` tells them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from afd_operator.api.scalars import format_duration

INT32_MAX = 2**31 - 1

_MEMBERS = "x-members"
"""Meanings of enum members on their way into descriptions; never in the result."""

_ORDER = ("description", "type", "format", "default", "enum")
_LAST = ("required", "items", "properties", "additionalProperties")


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of `model`. The same model gives the same schema, key order included."""
    raw = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Generator)
    return _convert(raw, raw.get("$defs", {}))


class _Generator(GenerateJsonSchema):
    """JSON Schema without null, and with the meanings of enum members."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value

    def encode_default(self, dft: Any) -> Any:
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return {**super().enum_schema(schema), _MEMBERS: member_docs(schema["cls"])}


def member_docs(enum: type[Enum]) -> dict[str, str]:
    """Value -> docstring of the enum's members that have one."""
    body = ast.parse(textwrap.dedent(inspect.getsource(enum))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                docs[str(enum[name].value)] = " ".join(text.split())
    return docs


def _convert(node: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """One schema node, without references. The map under `properties` is no node itself, so a field may be
    called `title` or `default`."""
    out = _inline(node, defs)
    for key in ("$defs", "title"):
        out.pop(key, None)
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if members := out.pop(_MEMBERS, None):
        meanings = " ".join(f"`{value}`: {text}" for value, text in members.items())
        out["description"] = f"{out.get('description', '')} {meanings}".strip()
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    _numbers(out)
    _objects(out, defs)
    if out.get("type") == "array":
        out.setdefault("x-kubernetes-list-type", "atomic")
    return _ordered(out)


def _inline(node: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(node)
    while reference := out.pop("$ref", None):
        out = {**defs[reference.removeprefix("#/$defs/")], **out}
    return out


def _numbers(out: dict[str, Any]) -> None:
    if out.get("type") == "integer":
        largest = out.get("maximum", out.get("exclusiveMaximum", INT32_MAX + 1))
        out["format"] = "int32" if largest <= INT32_MAX else "int64"
    if out.get("type") == "number":
        out["format"] = "double"
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in out:
            out[bound], out[exclusive] = out[exclusive], True


def _objects(out: dict[str, Any], defs: Mapping[str, Any]) -> None:
    more = out.get("additionalProperties")
    if isinstance(more, bool):
        del out["additionalProperties"]
    elif more is not None:
        out["additionalProperties"] = _convert(more, defs)
    if "items" in out:
        out["items"] = _convert(out["items"], defs)
    if "properties" in out:
        out["properties"] = {name: _convert(child, defs) for name, child in out["properties"].items()}
        if "default" in out:
            out["default"] = _own_part(out["default"], out)
    if out.get("default") in ({}, [], "") and not _fills_in(out):
        del out["default"]


def _own_part(default: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """What of an object's default its parts' defaults do not say already; all of it where it has rules,
    because the API server checks a default against them before it fills in the parts."""
    own = {}
    for name, value in default.items():
        part = schema["properties"][name]
        if isinstance(value, dict) and "properties" in part:
            value = _own_part(value, part)
        said = value == part.get("default") and "x-kubernetes-validations" not in schema
        if value not in (None, {}, []) and not said:
            own[name] = value
    return own


def _fills_in(schema: Mapping[str, Any]) -> bool:
    """Whether the API server, given an empty object, would add anything to it."""
    return any("default" in part for part in schema.get("properties", {}).values())


def _ordered(out: dict[str, Any]) -> dict[str, Any]:
    middle = [key for key in out if key not in _ORDER and key not in _LAST]
    return {key: out[key] for key in (*_ORDER, *middle, *_LAST) if key in out}
