"""What is made from the API's models and committed: the CRD, its copy in the chart, the API reference.

`make generate` runs `python -m tests.generated`; tests/unit/api fails while a file differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from afd_operator.api import crd, reference

ROOT = Path(__file__).resolve().parents[1]


def files() -> Mapping[str, str]:
    """Path in the repository -> text."""
    return {
        f"crds/{crd.FILE}": crd.render(),
        f"charts/afd-operator/templates/crds/{crd.FILE}": crd.render_for_chart(),
        "docs/api.md": reference.render(),
    }


def main() -> None:
    for path, text in files().items():
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
