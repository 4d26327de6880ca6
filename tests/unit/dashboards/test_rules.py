"""Rules for every board, on the JSON that Grafana gets. Named after grafana/dashboard-linter's; those of
its rules that ask for `job` and `instance` do not fit: a deployment and its units are what is chosen here.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from afd_dashboards import pages
from afd_unit import metrics
from afd_unit.metrics import Metric

Json = dict[str, Any]
BOARDS: list[Json] = [json.loads(text) for text in pages.boards().values()]
PANELS = [
    pytest.param(panel, id=f"{board['uid']}: {panel['title']}")
    for board in BOARDS
    for panel in board["panels"]
    if panel["type"] != "row"
]
SERIES = {series: metric for metric in metrics.ALL for series in metric.series}
TARGET_LABELS = {"namespace", "pod", "job", "instance"}
"""What a scrape adds; everything else on a series is the exporter's."""

each_board = pytest.mark.parametrize("board", BOARDS, ids=[board["uid"] for board in BOARDS])
each_panel = pytest.mark.parametrize("panel", PANELS)


def parsed(promql: str) -> promql_parser.Expr:
    return promql_parser.parse(promql.replace("$__rate_interval", "1m"))


def expressions(panel: Json) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def selectors(promql: str) -> Iterator[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        return True

    promql_parser.walk(parsed(promql), visit)
    yield from {id(node): node for node in found}.values()


def labels_of(metric: Metric) -> set[str]:
    return {*metric.labels, *TARGET_LABELS, "le"}


@each_board
def test_template_datasource(board: Json) -> None:
    """A board with some installation's data source in it is empty everywhere else."""
    first = board["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    sources = re.findall(r'"uid": "([^"]*)"', json.dumps(board))
    assert set(sources) == {"${datasource}", board["uid"]}


@each_board
def test_template_label_promql(board: Json) -> None:
    for variable in board["templating"]["list"][1:]:
        query = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"])
        assert query, variable["query"]
        assert query[2] in SERIES[query[1]].labels


@each_board
def test_variables_used_are_declared(board: Json) -> None:
    declared = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board)))
    assert used <= {*declared, "__rate_interval"}
    assert declared <= used, "a choice that changes nothing"


@each_board
def test_ids_are_unique(board: Json) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert "id" not in board, "an id is given by the installation"


@each_board
def test_panels_do_not_overlap_and_fit_the_grid(board: Json) -> None:
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)


@each_panel
def test_panel_title_description(panel: Json) -> None:
    assert panel["title"]
    assert len(panel["description"]) > 20
    assert panel["description"].endswith(".")


@each_panel
def test_panel_units(panel: Json) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]


@each_panel
def test_panel_datasource(panel: Json) -> None:
    for holder in (panel, *panel["targets"]):
        assert holder["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@each_panel
def test_target_promql(panel: Json) -> None:
    for promql in expressions(panel):
        parsed(promql)


@each_panel
def test_target_rate_interval(panel: Json) -> None:
    """A fixed range is empty at one zoom and too coarse at another."""
    for promql in expressions(panel):
        assert set(re.findall(r"\[([^\]]*)\]", promql)) <= {"$__rate_interval"}


@each_panel
def test_every_metric_and_label_is_exported(panel: Json) -> None:
    for promql in expressions(panel):
        found = list(selectors(promql))
        assert found, promql
        for selector in found:
            assert selector.name in SERIES, promql
            matched = {matcher.name for matcher in selector.matchers.matchers}
            assert matched <= labels_of(SERIES[selector.name]), promql


@each_panel
def test_every_query_is_limited_to_what_is_chosen(panel: Json) -> None:
    for promql in expressions(panel):
        for selector in selectors(promql):
            matchers = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
            assert matchers["deployment"] == "$deployment"
            assert ("unit" in SERIES[selector.name].labels) == (matchers.get("unit") == "$unit")


@each_panel
def test_legends_and_groupings_use_labels_that_are_there(panel: Json) -> None:
    for target in panel["targets"]:
        promql, legend = target["expr"], target["legendFormat"]
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", promql) for label in group.split(", ")}
        exported = set.intersection(*(labels_of(SERIES[s.name]) for s in selectors(promql)))
        assert grouped <= exported, promql
        left = grouped or (exported if "sum(" not in promql else set())
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= left, (promql, legend)


@each_panel
def test_reference_ids_tell_queries_apart(panel: Json) -> None:
    ids = [target["refId"] for target in panel["targets"]]
    assert ids == sorted(set(ids))
