"""The board of a deployment's units. It answers, from top to bottom: how long is a step, and are the
experts hidden behind attention? Then who waits for whom, what clients feel, and who is in the unit.
"""

from __future__ import annotations

from afd_dashboards.promql import (
    aggregate,
    gauge,
    mean,
    quantile,
    rate,
    rate_or_zero,
    sum_per_second,
)
from afd_dashboards.spec import Board, Panel, Query, Row, Show, Threshold, Unit, Variable

TARGET_SLACK = 0.1
"""The API's default of `scaling.targetSlack`: below it, more attention nodes would expose the experts."""

STEP = "afd_step_duration_seconds"
ATTENTION, EXPERTS, TRANSFER = (
    "afd_attention_time_seconds",
    "afd_ffn_time_seconds",
    "afd_transfer_time_seconds",
)
TTFT, ITL = "afd_time_to_first_token_seconds", "afd_inter_token_latency_seconds"
TPOT, E2E = "afd_request_time_per_output_token_seconds", "afd_e2e_request_latency_seconds"


def _quantiles(name: str, *by: str, shares: tuple[float, ...] = (0.5, 0.95)) -> tuple[Query, ...]:
    labels = "".join(f" {{{{{label}}}}}" for label in by)
    return tuple(
        Query(promql=quantile(share, name, *by), legend=f"p{share * 100:g}{labels}") for share in shares
    )


STEP_ROW = Row(
    title="Step and FFN slack",
    panels=(
        Panel(
            title="Step time",
            description="Wall time of one step over all layers of the unit, as the coordinator sees it. "
            "For decode steps it is the floor of the time per output token.",
            unit=Unit.SECONDS,
            minimum=0,
            queries=_quantiles(STEP, "unit", "phase"),
        ),
        Panel(
            title="FFN slack",
            description="(T_a - T_e) / T_a: how much shorter the experts' time is than attention's. Mean "
            "from the sums of both histograms; minimum of the reporting window. Negative: the "
            "FFN is exposed and slows every request. Large: fewer expert nodes, or more "
            "attention nodes, would do.",
            unit=Unit.RATIO,
            maximum=1,
            base_color="red",
            thresholds=(Threshold(value=0, color="orange"), Threshold(value=TARGET_SLACK, color="green")),
            queries=(
                Query(
                    promql=f"1 - {sum_per_second(EXPERTS, 'unit')} / {sum_per_second(ATTENTION, 'unit')}",
                    legend="mean, unit {{unit}}",
                ),
                Query(
                    promql=aggregate("min", gauge("afd_ffn_slack_ratio", 'stat="min"'), "unit"),
                    legend="minimum, unit {{unit}}",
                ),
            ),
        ),
        Panel(
            title="Exposed share of the step",
            description="Share of step time in which lanes waited for experts beyond their own work. 0 is "
            "the goal of disaggregation: everything that experts and transfers do is hidden "
            "behind attention.",
            unit=Unit.RATIO,
            minimum=0,
            thresholds=(Threshold(value=0.05, color="orange"), Threshold(value=0.2, color="red")),
            queries=(
                Query(
                    promql=f"{rate('afd_ffn_exposed_seconds', 'unit')} / {sum_per_second(STEP, 'unit')}",
                    legend="unit {{unit}}",
                ),
            ),
        ),
        Panel(
            title="Attention, experts, transfer",
            description="Mean time of one layer and microbatch: T_a on the attention side, T_e on the "
            "expert side, T_c one way between them. T_e and T_c stay hidden while together "
            "they are shorter than T_a times (microbatches - 1).",
            unit=Unit.SECONDS,
            minimum=0,
            queries=(
                Query(promql=mean(ATTENTION, "unit"), legend="T_a, unit {{unit}}"),
                Query(promql=mean(EXPERTS, "unit"), legend="T_e, unit {{unit}}"),
                Query(promql=mean(TRANSFER, "unit"), legend="T_c, unit {{unit}}"),
            ),
        ),
        Panel(
            title="Transfer time",
            description="One-way time of dispatch (routed activations to the experts) and combine (results"
            " back), one layer and microbatch.",
            unit=Unit.SECONDS,
            minimum=0,
            queries=_quantiles(TRANSFER, "unit", "direction"),
        ),
        Panel(
            title="Steps in flight",
            description="Steps issued and not yet committed, and microbatches in use. With no step in "
            "flight the unit is idle or paused; the protocol allows at most 3.",
            unit=Unit.COUNT,
            minimum=0,
            queries=(
                Query(promql=gauge("afd_pending_steps"), legend="steps, unit {{unit}}"),
                Query(promql=gauge("afd_microbatches"), legend="microbatches, unit {{unit}}"),
            ),
        ),
    ),
)

LANES_ROW = Row(
    title="Lanes",
    panels=(
        Panel(
            title="KV cache in use",
            description="Used share of each lane's KV pages. New requests wait when all lanes are near 100"
            " %.",
            unit=Unit.RATIO,
            minimum=0,
            maximum=1,
            thresholds=(Threshold(value=0.85, color="orange"), Threshold(value=0.95, color="red")),
            queries=(Query(promql=gauge("afd_kv_cache_usage_ratio"), legend="unit {{unit}} lane {{rank}}"),),
        ),
        Panel(
            title="Requests running",
            description="Requests in execution on each lane. Lanes far apart mean that the slowest one "
            "holds back the step of all.",
            unit=Unit.COUNT,
            minimum=0,
            queries=(Query(promql=gauge("afd_requests_running"), legend="unit {{unit}} lane {{rank}}"),),
        ),
        Panel(
            title="Requests waiting",
            description="Requests admitted and not yet running: for KV pages or table slots (capacity), or"
            " because the unit's steps stand still (paused).",
            unit=Unit.COUNT,
            minimum=0,
            queries=(Query(promql=gauge("afd_requests_waiting"), legend="unit {{unit}} {{reason}}"),),
        ),
        Panel(
            title="KV pages",
            description="KV pages of all lanes, free and used. At rest all are free.",
            unit=Unit.COUNT,
            minimum=0,
            queries=(
                Query(
                    promql=aggregate("sum", gauge("afd_kv_cache_blocks"), "unit", "state"),
                    legend="unit {{unit}} {{state}}",
                ),
            ),
        ),
    ),
)

EXPERTS_ROW = Row(
    title="Experts",
    panels=(
        Panel(
            title="Routed rows",
            description="Token rows that each expert worker computes per second.",
            unit=Unit.ROWS_PER_SECOND,
            minimum=0,
            columns=12,
            queries=(
                Query(
                    promql=rate("afd_expert_tokens", "unit", "rank"),
                    legend="unit {{unit}} worker {{rank}}",
                ),
            ),
        ),
        Panel(
            title="Imbalance of expert workers",
            description="Rows of the busiest expert worker over the mean of all. 1 is even; a round takes "
            "as long as its busiest worker.",
            unit=Unit.COUNT,
            minimum=1,
            columns=12,
            thresholds=(Threshold(value=1.5, color="orange"), Threshold(value=2, color="red")),
            queries=(
                Query(
                    promql=aggregate("max", rate("afd_expert_tokens", "unit", "rank"), "unit")
                    + " / "
                    + aggregate("avg", rate("afd_expert_tokens", "unit", "rank"), "unit"),
                    legend="unit {{unit}}",
                ),
            ),
        ),
    ),
)

REQUESTS_ROW = Row(
    title="Requests",
    panels=(
        Panel(
            title="Time to first token",
            description="From the gateway's receipt of a request to its first token.",
            unit=Unit.SECONDS,
            minimum=0,
            queries=_quantiles(TTFT, shares=(0.5, 0.95, 0.99)),
        ),
        Panel(
            title="Time per output token",
            description="(finish - first token) / (tokens - 1) of each finished request.",
            unit=Unit.SECONDS,
            minimum=0,
            queries=_quantiles(TPOT, shares=(0.5, 0.95, 0.99)),
        ),
        Panel(
            title="Inter-token latency",
            description="Between two tokens of a request: pauses of the unit show here and not in the mean"
            " per request.",
            unit=Unit.SECONDS,
            minimum=0,
            queries=_quantiles(ITL, shares=(0.5, 0.95, 0.99)),
        ),
        Panel(
            title="End-to-end latency",
            description="From the receipt of a request to its last token.",
            unit=Unit.SECONDS,
            minimum=0,
            queries=_quantiles(E2E, shares=(0.5, 0.95)),
        ),
        Panel(
            title="Tokens",
            description="Prompt tokens read and output tokens streamed, all gateways.",
            unit=Unit.TOKENS_PER_SECOND,
            minimum=0,
            queries=(
                Query(promql=rate("afd_prompt_tokens"), legend="prompt"),
                Query(promql=rate("afd_generation_tokens"), legend="output"),
            ),
        ),
        Panel(
            title="Requests finished",
            description="Completions by reason: stop and length are good ends, abort is a client that left.",
            unit=Unit.REQUESTS_PER_SECOND,
            minimum=0,
            queries=(
                Query(promql=rate("afd_requests_finished", "finished_reason"), legend="{{finished_reason}}"),
            ),
        ),
        Panel(
            title="Requests refused and replayed",
            description="Refused by admission (afd_admission_rejections_total has the reasons), and run "
            "again after the loss of a lane. A replayed request's client saw a pause and "
            "nothing else.",
            unit=Unit.REQUESTS_PER_SECOND,
            minimum=0,
            columns=12,
            queries=(
                Query(promql=rate_or_zero("afd_admission_rejections"), legend="refused"),
                Query(promql=rate("afd_requests_replayed"), legend="replayed"),
            ),
        ),
        Panel(
            title="HTTP answers",
            description="Answers of the gateways by path and status code.",
            unit=Unit.REQUESTS_PER_SECOND,
            minimum=0,
            columns=12,
            queries=(Query(promql=rate("afd_gateway_requests", "path", "code"), legend="{{code}} {{path}}"),),
        ),
    ),
)

MEMBERS_ROW = Row(
    title="Epoch and workers",
    panels=(
        Panel(
            title="Workers in the member table",
            description="Workers of each role that take part in the current epoch.",
            unit=Unit.COUNT,
            minimum=0,
            queries=(
                Query(
                    promql=aggregate("sum", gauge("afd_worker_ready"), "unit", "role"),
                    legend="unit {{unit}} {{role}}",
                ),
            ),
        ),
        Panel(
            title="Epoch",
            description="Number of the member table in force. It goes up by one for each change of "
            "membership; many changes in a short time are workers that come and go.",
            unit=Unit.COUNT,
            show=Show.NUMBERS,
            queries=(Query(promql=gauge("afd_epoch"), legend="unit {{unit}}"),),
        ),
        Panel(
            title="Messages dropped",
            description="Messages of another epoch or incarnation, or unreadable "
            "(afd_messages_dropped_total has the reasons). Some at a change of membership are "
            "normal; a steady rate is a worker that does not follow.",
            unit=Unit.EVENTS_PER_SECOND,
            minimum=0,
            queries=(Query(promql=rate_or_zero("afd_messages_dropped"), legend="dropped"),),
        ),
        Panel(
            title="Topology",
            description="Attention nodes, expert nodes, GPUs per node and the NVLink domain that the unit "
            "runs in.",
            unit=Unit.COUNT,
            show=Show.NAMES,
            columns=24,
            queries=(
                Query(
                    promql=gauge("afd_topology_info"),
                    legend="unit {{unit}}: {{attention_nodes}} attention + {{ffn_nodes}} expert nodes of "
                    "{{gpus_per_node}} GPUs in {{nvlink_domain}}",
                ),
            ),
        ),
    ),
)

UNIT_BOARD = Board(
    uid="afd-unit",
    title="AFD unit",
    description="Attention-FFN disaggregation: steps, slack, lanes, experts and requests of a deployment's"
    " units.",
    tags=("afd",),
    variables=(
        Variable(name="deployment", title="Deployment", series="afd_epoch", label="deployment"),
        Variable(
            name="unit",
            title="Unit",
            series='afd_epoch{deployment="$deployment"}',
            label="unit",
            multiple=True,
        ),
    ),
    rows=(STEP_ROW, LANES_ROW, EXPERTS_ROW, REQUESTS_ROW, MEMBERS_ROW),
)
