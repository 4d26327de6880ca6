"""Reading config.json: every field checked once, every complaint naming the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afd_runtime.models.checkpoint import ModelError

_MISSING = object()


class Fields:
    """Typed access to a config. Each getter raises ModelError naming the field and what it holds."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`, under the first of `names` that is there."""
        name, value = self._first(names)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ModelError(
                f"config.json: {name} is {value!r}, a whole number of at least {least} is needed"
            )
        return value

    def number(self, name: str, default: float) -> float:
        """A positive number."""
        value = self._config.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ModelError(f"config.json: {name} is {value!r}, a positive number is needed")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._config.get(name, default)
        if not isinstance(value, bool):
            raise ModelError(f"config.json: {name} is {value!r}, true or false is needed")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty when absent or null."""
        value = self._config.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise ModelError(f"config.json: {name} is {value!r}, a list of whole numbers is needed")
        return tuple(value)

    def table(self, name: str) -> Fields | None:
        """A nested object, or None when absent or null."""
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ModelError(f"config.json: {name} is {value!r}, an object is needed")
        return Fields(value)

    def require(self, name: str, allowed: object, *, why: str) -> None:
        """Refuse any value of `name` but `allowed` (absent and null are allowed too)."""
        value = self._config.get(name)
        if value is not None and value != allowed:
            raise ModelError(f"config.json: {name} is {value!r}, only {allowed!r} is supported: {why}")

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            value = self._config.get(name, _MISSING)
            if value is not _MISSING and value is not None:
                return name, value
        return names[0], None
