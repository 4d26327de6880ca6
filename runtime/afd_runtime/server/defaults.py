"""How a checkpoint's makers want it sampled when a request does not say: generation_config.json.

vLLM and SGLang take these as defaults as well. A request's own values always go before them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = "generation_config.json"


class DefaultsError(RuntimeError):
    """The file is there and cannot be used; the message says why."""


@dataclass(frozen=True)
class Defaults:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.temperature <= 2 and 0 < self.top_p <= 1 and self.top_k >= 0):
            raise DefaultsError(
                f"{FILE}: temperature {self.temperature}, top_p {self.top_p}, top_k {self.top_k} are not "
                "within 0..2, (0, 1] and 0 or more"
            )


def load(folder: str | Path) -> Defaults:
    """OpenAI's defaults where the checkpoint has none. Raises DefaultsError."""
    path = Path(folder) / FILE
    if not path.exists():
        return Defaults()
    try:
        config = json.loads(path.read_text())
        given = {
            name: config[name] for name in ("temperature", "top_p", "top_k") if config.get(name) is not None
        }
        return Defaults(**given)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DefaultsError(f"{path}: {error}") from error
