"""A board as Grafana JSON, through grafana-foundation-sdk of the 11.6 line (schema 41).

The SDK numbers neither panels nor queries; both are numbered here in reading order, so that the same spec
gives the same text. The data source is a variable of the board: no uid of some installation is in the file.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_builder
from grafana_foundation_sdk.builders import dashboard as dashboard_builder
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard

from afd_dashboards.spec import GRID_COLUMNS, Board, Panel, Show, Variable

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
ROW_HEIGHT, NUMBERS_HEIGHT, LINES_HEIGHT = 1, 4, 8
REFRESH, SINCE = "10s", "now-30m"


def to_json(board: Board) -> str:
    """Text of the file that Grafana imports; ends with a newline."""
    builder = (
        dashboard_builder.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(list(board.tags))
        .editable()
        .refresh(REFRESH)
        .time(SINCE, "now")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard_builder.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    for variable in board.variables:
        builder = builder.with_variable(_variable(variable))
    for row_id, row_y, title, placed in _layout(board):
        builder = builder.with_row(
            dashboard_builder.Row(title).id(row_id).grid_pos(_place(0, row_y, GRID_COLUMNS, ROW_HEIGHT))
        )
        for panel_id, place, panel in placed:
            builder = builder.with_panel(_panel(panel, panel_id, place))
    return json.dumps(builder.build(), cls=JSONEncoder, sort_keys=True, indent=2) + "\n"


Placed = tuple[int, dashboard.GridPos, Panel]


def _layout(board: Board) -> Iterator[tuple[int, int, str, list[Placed]]]:
    """(id of the row, its y, title, panels with id and place): panels flow left to right within their row."""
    number, y = 0, 0
    for row in board.rows:
        number += 1
        row_id, row_y = number, y
        y += ROW_HEIGHT
        x, line_height, placed = 0, 0, list[Placed]()
        for panel in row.panels:
            number += 1
            height = LINES_HEIGHT if panel.show is Show.LINES else NUMBERS_HEIGHT
            if x + panel.columns > GRID_COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            placed.append((number, _place(x, y, panel.columns, height), panel))
            x, line_height = x + panel.columns, max(line_height, height)
        y += line_height
        yield row_id, row_y, row.title, placed


def _place(x: int, y: int, width: int, height: int) -> dashboard.GridPos:
    return dashboard.GridPos(x=x, y=y, w=width, h=height)


def _variable(variable: Variable) -> dashboard_builder.QueryVariable:
    query = f"label_values({variable.series}, {variable.label})"
    builder = (
        dashboard_builder.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    )
    return builder.multi(True).include_all(True).all_value(".*") if variable.multiple else builder


def _panel(panel: Panel, number: int, place: dashboard.GridPos) -> timeseries.Panel | stat.Panel:
    builder = (timeseries.Panel if panel.show is Show.LINES else stat.Panel)()
    builder = (
        builder.id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit.value)
        .grid_pos(place)
        .thresholds(_thresholds(panel))
    )
    if panel.minimum is not None:
        builder = builder.min(panel.minimum)
    if panel.maximum is not None:
        builder = builder.max(panel.maximum)
    if isinstance(builder, stat.Panel) and panel.show is Show.NAMES:
        builder = builder.text_mode(common.BigValueTextMode.NAME)
    if isinstance(builder, timeseries.Panel):
        builder = builder.fill_opacity(8).legend(
            common_builder.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        if panel.thresholds:
            builder = builder.thresholds_style(
                common_builder.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
            )
    for ref, query in zip(string.ascii_uppercase, panel.queries, strict=False):
        builder = builder.with_target(
            prometheus.Dataquery()
            .ref_id(ref)
            .datasource(DATASOURCE)
            .expr(query.promql)
            .legend_format(query.legend)
            .range()
        )
    return builder


def _thresholds(panel: Panel) -> dashboard_builder.ThresholdsConfig:
    steps = [dashboard.Threshold(value=None, color=panel.base_color)]
    steps += [dashboard.Threshold(value=t.value, color=t.color) for t in panel.thresholds]
    return dashboard_builder.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
