"""Four pictures of one search, as SVG or PNG: needs matplotlib (extra `planner`), loaded only here.

throughput against M    FFN slack against M
Pareto front            SM budget against prefill nodes (heat map)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from afd_operator.planner.errors import PlannerError
from afd_operator.planner.layout import MARGIN, Evaluation, Layouts, pareto
from afd_operator.planner.plan import Plan, Planner

FORMATS = (".svg", ".png")


class CannotPlot(PlannerError):
    """No layout to draw, no matplotlib, or a format other than SVG and PNG."""


def draw(planner: Planner, plan: Plan, path: Path) -> None:
    """Write the four panels of `planner`'s search to `path`; raises CannotPlot."""
    if path.suffix not in FORMATS:
        raise CannotPlot(f"{path}: plots are written as {' or '.join(FORMATS)}")
    layouts, result = planner.layouts, planner.result
    if layouts is None or result is None or plan.layout is None:
        raise CannotPlot("there is no layout to draw: the plan has none")
    try:
        import matplotlib
    except ImportError:
        raise CannotPlot("plots need matplotlib: pip install 'afd[planner]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    _against_m(axes[0][0], axes[0][1], layouts, result, plan)
    _pareto(axes[1][0], layouts, result, plan)
    _budget(axes[1][1], layouts, result, plan)
    figure.suptitle(f"{planner.question.model.name} on {planner.question.hardware.title}: {plan.answer}")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _against_m(rate: Any, slack: Any, layouts: Layouts, result: Evaluation, plan: Plan) -> None:
    """Best rate over prefill, microbatches and budget for every (M, N), and the slack there."""
    assert plan.layout is not None
    for n in np.unique(layouts.expert).tolist():
        points = []
        for m in np.unique(layouts.attention[layouts.expert == n]).tolist():
            mine = np.flatnonzero((layouts.expert == n) & (layouts.attention == m) & result.feasible)
            if len(mine):
                best = mine[np.argmax(result.requests_per_s[mine])]
                points.append((m, result.tokens_per_s[best], result.slack[best]))
        if points:
            ms, rates, slacks = zip(*points, strict=True)
            rate.plot(ms, rates, marker=".", label=f"N = {n}")
            slack.plot(ms, slacks, marker=".", label=f"N = {n}")
    for c in plan.baselines[:1]:
        rate.axhline(c.tokens_per_s, color="black", linestyle="--", label=f"{c.system} {c.setting}")
    rate.axvline(plan.layout.attention, color="grey", linewidth=0.5)
    rate.set(xlabel="attention nodes M", ylabel="output tokens/s per GPU", title="Throughput")
    slack.axhline(MARGIN, color="grey", linestyle=":")
    slack.set(xlabel="attention nodes M", ylabel="(T_a - T_e) / T_a", title="FFN slack", ylim=(-1, 1))
    rate.legend(fontsize="x-small"), slack.legend(fontsize="x-small")


def _pareto(axis: Any, layouts: Layouts, result: Evaluation, plan: Plan) -> None:
    front = pareto(result)
    axis.scatter(
        result.step_us[result.feasible] / 1e3,
        result.tokens_per_s[result.feasible],
        s=2,
        alpha=0.2,
        rasterized=True,
        label="feasible layouts",
    )
    axis.plot(
        result.step_us[front] / 1e3,
        result.tokens_per_s[front],
        color="tab:red",
        marker=".",
        label="Pareto front",
    )
    for c in plan.baselines:
        axis.scatter([c.step_s * 1e3], [c.tokens_per_s], color="black", s=10)
    axis.set(xlabel="TPOT, ms", ylabel="output tokens/s per GPU", title="Pareto front (black: colocated)")
    axis.legend(fontsize="x-small")


def _budget(axis: Any, layouts: Layouts, result: Evaluation, plan: Plan) -> None:
    assert plan.layout is not None
    mine = (
        (layouts.attention == plan.layout.attention)
        & (layouts.expert == plan.layout.expert)
        & (layouts.microbatches == plan.layout.microbatches)
    )
    budgets, prefills = np.unique(layouts.budget[mine]), np.unique(layouts.prefill[mine])
    grid = np.full((len(prefills), len(budgets)), np.nan)
    rows, columns = (
        np.searchsorted(prefills, layouts.prefill[mine]),
        np.searchsorted(budgets, layouts.budget[mine]),
    )
    grid[rows, columns] = np.where(result.feasible[mine], result.requests_per_s[mine], np.nan)
    image = axis.pcolormesh(budgets, prefills, grid, shading="nearest", rasterized=True)
    axis.figure.colorbar(image, ax=axis, label="requests/s per GPU")
    axis.set(xlabel="SMs for decode, q", ylabel="prefill nodes", title=f"SM budget at {plan.layout.ratio}")
