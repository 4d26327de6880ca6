"""The table of values in the chart's README, made from values.yaml and the comments above its keys.

`python -m tests.unit.chart.values_table` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CHART = Path(__file__).resolve().parents[3] / "charts" / "afd-operator"

_COMMENT = re.compile(r" *# ?(?P<text>.*)")
_KEY = re.compile(r"(?P<indent> *)(?P<name>\w+):(?P<value>.*)")


def rows() -> Iterator[tuple[str, str, str]]:
    """(dotted key, default, comment) of every key that has a comment."""
    path: list[str] = []
    comment: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if found := _COMMENT.fullmatch(line):
            comment.append(found["text"])
            continue
        if found := _KEY.fullmatch(line):
            path = [*path[: len(found["indent"]) // 2], found["name"]]
            if comment:
                yield ".".join(path), found["value"].strip(), " ".join(comment)
        comment = []


def table() -> str:
    head = "| value | default | meaning |\n|---|---|---|\n"
    return head + "".join(
        f"| `{key}` | {f'`{default}`' if default else 'see values.yaml'} | {text} |\n"
        for key, default, text in rows()
    )


if __name__ == "__main__":
    print(table(), end="")
