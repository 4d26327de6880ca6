"""The domain selector has the semantics of metav1.LabelSelector."""

from __future__ import annotations

import pytest

from afd_operator.api.placement import NodeSelector

NODE = {"pool": "inference", "generation": "gb200"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"pool": "inference"}}, True),
        ({"matchLabels": {"pool": "training"}}, False),
        ({"matchLabels": {"absent": ""}}, False),
        ({"matchExpressions": [{"key": "generation", "operator": "In", "values": ["gb200", "gb300"]}]}, True),
        ({"matchExpressions": [{"key": "absent", "operator": "In", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "generation", "operator": "NotIn", "values": ["gb200"]}]}, False),
        ({"matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}, True),
        (
            {
                "matchLabels": {"pool": "inference"},
                "matchExpressions": [{"key": "absent", "operator": "Exists"}],
            },
            False,
        ),
    ],
)
def test_selects(selector: dict[str, object], selected: bool) -> None:
    assert NodeSelector.model_validate(selector).selects(NODE) is selected
