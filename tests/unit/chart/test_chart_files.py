"""What can be said of the chart without helm: every value is explained, checked, and in the README."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from tests.unit.chart.values_table import CHART, rows, table

from afd_operator.api.deployment import API_VERSION
from afd_operator.api.load import parse

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text())


def leaves(values: dict[str, Any], path: str = "") -> list[str]:
    """Dotted keys of all values that are no objects of ours (an empty map or one of free keys is a value)."""
    found = []
    for key, value in values.items():
        free = key in ("resources", "labels")
        found += (
            leaves(value, f"{path}{key}.")
            if isinstance(value, dict) and value and not free
            else [f"{path}{key}"]
        )
    return found


def test_every_value_has_a_comment_above_it() -> None:
    assert leaves(VALUES) == [key for key, _, _ in rows()]


def test_the_readme_has_the_table_of_values() -> None:
    assert (CHART / "README.md").read_text().endswith(f"## Values\n\n{table()}")


def test_the_schema_knows_exactly_the_values() -> None:
    def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        assert schema["additionalProperties"] is False, f"{path}: a typo would pass"
        assert set(values) == set(schema["properties"]) - {"global"}, path
        for key, value in values.items():
            if "properties" in schema["properties"][key]:
                compare(value, schema["properties"][key], f"{path}.{key}")

    compare(VALUES, SCHEMA, "values")


@pytest.mark.parametrize("path", sorted(CHART.glob("templates/*.yaml")), ids=lambda path: path.name)
def test_no_template_reads_a_value_that_does_not_exist(path: Any) -> None:
    """Helm renders a misspelt value as nothing."""
    text = path.read_text() + (CHART / "templates" / "_helpers.tpl").read_text()
    for used in {word.strip("()|,") for word in text.split() if word.lstrip("($").startswith(".Values.")}:
        at: Any = VALUES
        for key in used.lstrip("($").removeprefix(".Values.").split("."):
            assert key in at, used
            at = at[key]


def test_the_example_of_the_chart_is_a_legal_deployment() -> None:
    (example,) = yaml.safe_load(METADATA["annotations"]["artifacthub.io/crdsExamples"])
    assert example["apiVersion"] == API_VERSION
    parse(example)
