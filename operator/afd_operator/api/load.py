"""`parse`: a dict as it comes from the API server -> AFDDeployment, or one readable error.

Types and bounds are pydantic's work. Then the tree is walked for what a structural schema says beside them:
rules between fields, unique keys of list-maps, legal keys of label maps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from afd_operator.api.base import ApiModel
from afd_operator.api.deployment import AFDDeployment
from afd_operator.api.scalars import LABEL_KEY
from afd_operator.api.status import AFDDeploymentStatus

_LABEL_MAPS = frozenset({"labels", "annotations", "match_labels", "node_selector"})


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong, and where: `spec.ratio.prefill`, `must be less than ...`."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidDeployment(ValueError):
    """An AFDDeployment that cannot be acted on. `violations` has at least one entry."""

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("; ".join(map(str, violations)))


def parse(obj: Mapping[str, Any]) -> AFDDeployment:
    """The object as a model. Raises InvalidDeployment that names every field at fault."""
    try:
        deployment = AFDDeployment.model_validate({**obj, "status": _status(obj.get("status"))})
    except ValidationError as error:
        raise InvalidDeployment(
            [_from_pydantic(e["loc"], e["type"], e["msg"]) for e in error.errors()]
        ) from None
    if violations := list(broken_rules(deployment.spec, "spec")):
        raise InvalidDeployment(violations)
    return deployment


def _status(status: object) -> AFDDeploymentStatus:
    """The status, or an empty one where another version of the operator wrote what this one cannot read: a
    status is computed anew in every reconcile, so it may never keep a spec from being acted on."""
    try:
        return AFDDeploymentStatus.model_validate(status or {})
    except ValidationError:
        return AFDDeploymentStatus()


def broken_rules(model: ApiModel, path: str) -> Iterator[Violation]:
    """All that `model`, found at `path`, and the objects in it break of the rules between fields."""
    for rule in model.rules:
        if not rule.holds(model):
            yield Violation(f"{path}.{rule.field}", rule.message)
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        at = f"{path}.{info.alias or name}"
        if isinstance(value, ApiModel):
            yield from broken_rules(value, at)
        elif isinstance(value, list):
            yield from _duplicates(value, info, at)
            for index, item in enumerate(value):
                if isinstance(item, ApiModel):
                    yield from broken_rules(item, f"{at}[{index}]")
        elif name in _LABEL_MAPS:
            illegal = [key for key in value if not re.fullmatch(LABEL_KEY, key)]
            yield from (Violation(at, f"{key!r} is no legal key") for key in illegal)


def _duplicates(items: list[ApiModel], info: FieldInfo, path: str) -> Iterator[Violation]:
    extra = info.json_schema_extra
    keys = extra.get("x-kubernetes-list-map-keys") if isinstance(extra, dict) else None
    if not isinstance(keys, list):
        return
    seen: set[object] = set()
    for index, item in enumerate(items):
        identity = item.dump()[str(keys[0])]
        if identity in seen:
            yield Violation(f"{path}[{index}]", f"{keys[0]} {identity!r} occurs twice")
        seen.add(identity)


def _from_pydantic(location: tuple[int | str, ...], kind: str, message: str) -> Violation:
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if kind == "extra_forbidden":
        message = "is not known to this version of the operator; is the CRD newer than it?"
    return Violation(field, message.removeprefix("Value error, "))
