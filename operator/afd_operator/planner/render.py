"""A plan as tables for a terminal. The only place that knows rich; loaded when a table is asked for."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from afd_operator.planner.figure import Figure
from afd_operator.planner.plan import Phase, Plan, Question
from afd_operator.planner.verdict import Answer

HEADLINE = {
    Answer.DISAGGREGATE: "[bold green]yes: disaggregate[/]",
    Answer.WITHIN_ERROR: "[bold yellow]not established: the gain is within the prediction error[/]",
    Answer.COLOCATE: "[bold red]no: do not disaggregate[/]",
}
LABELS = {
    "speedup": "speedup over the best colocated system",
    "batchExpansion": "  batch expansion",
    "ffnTax": "  FFN tax",
    "latencyRatio": "  latency ratio",
    "attentionTime": "T_a, a layer and microbatch",
    "expertTime": "T_e, a layer and microbatch",
    "transferTime": "T_c, one way",
    "ffnSlack": "FFN slack",
    "stepTime": "decode step",
    "prefillTime": "prefill pass",
    "requestsPerSecondPerGpu": "requests per GPU",
    "tokensPerSecondPerGpu": "output tokens per GPU",
}
ORDER = list(LABELS)


def plan_table(console: Console, question: Question, plan: Plan) -> None:
    """The answer, its reasons, the layout, the figures and the baselines."""
    hw, work = question.hardware, question.workload
    console.print(
        f"[bold]{question.model.name}[/] on {hw.title}: prompts {work.prompt_tokens:.0f}, "
        f"answers {work.output_tokens:.0f} tokens ({plan.phase})"
    )
    console.print(HEADLINE[plan.answer])
    for finding in plan.findings:
        console.print(f"  {finding.reason}: {finding.text}", highlight=False)
    if plan.layout is not None:
        layout = plan.layout
        prefill = f", {layout.prefill} of them prefill only" if plan.phase is Phase.SERVE else ""
        console.print(
            f"layout: {layout.attention} attention : {layout.expert} expert "
            f"nodes{prefill}; {layout.microbatches} microbatch(es); "
            f"{plan.batch} requests a decode GPU; SMs for decode {layout.decode_sms}, "
            f"boundary {layout.boundary_sms or 'not established'}",
            highlight=False,
        )
        console.print(_figures(plan.figures))
    console.print(_baselines(plan))


def _figures(figures: dict[str, Figure]) -> Table:
    table = Table(title="Figures", title_justify="left")
    for column in ("figure", "value", "90 % interval", "kind", "source"):
        table.add_column(
            column, overflow="fold", justify="right" if column in ("value", "90 % interval") else "left"
        )
    for name in sorted(figures, key=ORDER.index):
        f = figures[name]
        interval = "" if f.low is None or f.high is None else f"{f.low:.4g} .. {f.high:.4g}"
        table.add_row(LABELS[name], f"{f.value:.4g} {f.unit}", interval, str(f.kind), f.source)
    return table


def _baselines(plan: Plan) -> Table:
    table = Table(title="Colocated systems, best setting of each", title_justify="left")
    for column in ("system", "setting", "batch", "step ms", "tokens/s/GPU", "requests/s/GPU"):
        table.add_column(column, justify="left" if column in ("system", "setting") else "right")
    for c in plan.baselines:
        table.add_row(
            c.system,
            c.setting,
            str(c.batch),
            f"{c.step_s * 1e3:.1f}",
            f"{c.tokens_per_s:.0f}",
            f"{c.requests_per_s:.4g}",
        )
    return table


def explanation(console: Console, plan: Plan, changes: list[tuple[str, str]]) -> None:
    """The three factors, and what would change the answer."""
    f = plan.figures
    if "batchExpansion" in f:
        product = " x ".join(f"{f[k].value:.3f}" for k in ("batchExpansion", "ffnTax", "latencyRatio"))
        console.print(
            f"speedup = batch expansion x FFN tax x latency ratio = {product} = {f['speedup'].value:.3f}",
            highlight=False,
        )
    table = Table(title="What would change the answer", title_justify="left")
    table.add_column("if there were")
    table.add_column("the answer would be")
    for change, outcome in changes:
        table.add_row(change, outcome)
    console.print(table)
