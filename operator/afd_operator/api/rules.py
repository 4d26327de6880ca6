"""Rules between fields, each written once for its two judges.

    Rule(cel="self.min <= self.max", holds=lambda s: s.min <= s.max, field="min", message="...")
             |                                |
             CRD, x-kubernetes-validations    `load.parse`, in every reconcile

The API server refuses a new object that breaks a rule. It lets stored objects be: those written before
the rule existed still reach the operator, hence the second judge. tests/unit/api/test_rules.py evaluates
the CEL with a CEL library and holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule of an object. Neither judge is asked before the object's own types and bounds hold."""

    cel: str
    holds: Callable[[Any], bool]
    field: str
    """The field to blame, camelCase, dotted, relative to the object that has the rule."""
    message: str
    """What must hold, in words; the API server prints it behind the field's path."""

    def as_schema(self) -> dict[str, str]:
        """The rule as an item of `x-kubernetes-validations`."""
        return {"rule": self.cel, "message": self.message, "fieldPath": f".{self.field}"}
