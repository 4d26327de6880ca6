"""Models known by name: the configs that ship with the package."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from afd_operator.planner.errors import InvalidModel
from afd_operator.planner.model import ModelSpec, read_config


@cache
def _entries() -> dict[str, Any]:
    text = (files("afd_operator.planner") / "data" / "models.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["models"])


def names() -> list[str]:
    """Every model with a packaged config, whether or not the planner covers it."""
    return sorted(_entries())


def model(name: str) -> ModelSpec:
    """The packaged model `name`, or the only one whose name ends with it; raises InvalidModel or UnsupportedModel."""
    entries = _entries()
    wanted = name.lower()
    matches = [n for n in entries if n.lower() == wanted] or [
        n for n in entries if n.lower().endswith("/" + wanted)
    ]
    if len(matches) != 1:
        near = [n for n in entries if wanted.split("/")[-1][:6] in n.lower()]
        hint = f"; close: {', '.join(near[:6])}" if near else ""
        raise InvalidModel(f"no packaged config for {name!r}{hint}; give the path of a config.json instead")
    entry = entries[matches[0]]
    return read_config(matches[0], entry["config"], entry.get("quantisation"))
