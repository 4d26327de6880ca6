"""What Kubernetes asks of a structural schema, and what we ask on top: bounds and descriptions everywhere.

The API server is the judge (tests/cluster/test_api.py); this one needs no cluster and names the faulty node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ALLOWED = frozenset(
    [
        "description",
        "type",
        "format",
        "default",
        "enum",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "required",
        "properties",
        "items",
        "additionalProperties",
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    ]
)
"""Of apiextensions.k8s.io/v1 JSONSchemaProps, what this project uses. Not among them, though pydantic emits
them: $ref, anyOf, const, title, uniqueItems."""

BOUND = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}
"""Without its bound a type makes rules over it cost too much, or takes numbers that nobody meant."""


def faults(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """What is wrong with `schema` and the schemas in it, each with its path."""
    yield from (f"{path}: {key} is not allowed" for key in schema.keys() - ALLOWED)
    yield from (f"{path}: {what}" for what in _shape(schema))
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            yield f"{path}.{name}: no description"
        yield from faults(field, f"{path}.{name}")
    if "items" in schema:
        yield from faults(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from faults(schema["additionalProperties"], f"{path}[*]")


def _shape(schema: Mapping[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if kind is not None:
            yield "int-or-string beside a type"
        return
    if kind not in {*BOUND, "object", "boolean"}:
        yield f"type {kind!r}"
    if kind in BOUND and BOUND[kind] not in schema and "enum" not in schema:
        yield f"no {BOUND[kind]}"
    if kind == "object" and ("properties" in schema) == ("additionalProperties" in schema):
        yield "neither an object with known fields nor a map, or both"
    if "additionalProperties" in schema and "maxProperties" not in schema:
        yield "no maxProperties: rules over it would cost too much"
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(schema.get(key, True), bool):
            yield f"{key} is a number"
    if schema.get("x-kubernetes-list-type") == "map":
        known = schema["items"]["properties"]
        for key in schema["x-kubernetes-list-map-keys"]:
            if key not in known or not (key in schema["items"]["required"] or "default" in known[key]):
                yield f"list-map key {key} is neither required nor defaulted"
    elif kind == "array" and schema.get("x-kubernetes-list-type") != "atomic":
        yield "no list type"


def with_defaults(value: Any, schema: Mapping[str, Any]) -> Any:
    """`value` after the API server's defaulting: absent fields with a default appear, from the outside in."""
    if isinstance(value, dict):
        fields = schema.get("properties", {})
        missing = {
            name: field["default"]
            for name, field in fields.items()
            if "default" in field and name not in value
        }
        return {
            name: with_defaults(part, fields.get(name, {})) for name, part in {**value, **missing}.items()
        }
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items", {})) for item in value]
    return value
