"""docs/api.md: every field of AFDDeployment with type, default, bounds and meaning, and all rules.

Made from the same schema as the CRD, so the page cannot say anything else than the API server does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from afd_operator.api.conditions import ConditionType
from afd_operator.api.crd import definition
from afd_operator.api.deployment import API_VERSION, KIND, SHORT_NAME
from afd_operator.api.scalars import DURATION
from afd_operator.api.schema import member_docs

_INTRO = f"""\
<!-- Made by `afd crd --reference` from operator/afd_operator/api. Change the models, not this page. -->
# {KIND}, `{API_VERSION}`

Short name `{SHORT_NAME}`. The least that works:

```yaml
apiVersion: {API_VERSION}
kind: {KIND}
metadata:
  name: demo
spec:
  model:
    id: afd/demo
    source: pvc://models/demo
  runtime:
    image: registry.example/afd:0.1.0
```

The API server fills in defaults and checks types, bounds and rules; `kubectl explain {SHORT_NAME}.spec`
prints the same text. What is legal but cannot be done by the version at hand ends in the condition
`SpecActedOn`, which names the fields. An absent list or map is an empty one.
"""


def render() -> str:
    """The page as Markdown."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    lines = [_INTRO, "## Spec", *_section("spec", schema["spec"])]
    lines += ["## Status", *_section("status", schema["status"])]
    lines += ["## Conditions", "| type | meaning |", "|---|---|"]
    lines += [f"| `{kind}` | {text} |" for kind, text in member_docs(ConditionType).items()]
    return "\n".join(lines) + "\n"


def _section(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """The table of one object's fields, its rules, then the objects in it."""
    yield f"### `{path}`"
    yield f"{schema['description']}\n"
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {_cell(field['description'])} |"
    yield ""
    if rules := schema.get("x-kubernetes-validations"):
        yield "Rules:\n"
        yield from (f"- `{path}{rule['fieldPath']}` {rule['message']}" for rule in rules)
        yield ""
    for name, field in schema["properties"].items():
        if "properties" in field:
            yield from _section(f"{path}.{name}", field)
        elif "properties" in field.get("items", {}):
            yield from _section(f"{path}.{name}[]", field["items"])


def _type(field: Mapping[str, Any]) -> str:
    """The type in words, with its bounds."""
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        items = field["items"]
        unique = ", ".join(field.get("x-kubernetes-list-map-keys", ()))
        told_apart = f" by {unique}" if unique else ""
        inner = "object" if "properties" in items else _type(items)
        return f"list of {inner}{told_apart}, at most {field['maxItems']}"
    if field.get("pattern") == DURATION:
        return "duration"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}, at most {field['maxProperties']}"
    return f"{field['type']}{_bounds(field)}"


def _bounds(field: Mapping[str, Any]) -> str:
    words = []
    if "minimum" in field:
        words.append(f"{'>' if field.get('exclusiveMinimum') else '≥'} {field['minimum']}")
    if "maximum" in field:
        words.append(f"{'<' if field.get('exclusiveMaximum') else '≤'} {field['maximum']}")
    if "multipleOf" in field:
        words.append(f"multiple of {field['multipleOf']}")
    if "maxLength" in field:
        words.append(f"at most {field['maxLength']} characters")
    return f", {', '.join(words)}" if words else ""


def _default(field: Mapping[str, Any]) -> str:
    match field.get("default"):
        case None:
            return ""
        case dict() as parts if not parts:
            return ""
        case dict() as parts:
            return f"`{{{', '.join(f'{key}: {value}' for key, value in parts.items())}}}`"
        case value:
            return f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
