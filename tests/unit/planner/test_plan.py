"""Whole plans: yes, no and not sure on real cases; invariants of the search; the manifest and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planner.worlds import DECODE_RULES, GB200, QWEN, bigger, layer, models

from afd_operator.api.load import parse
from afd_operator.planner import catalog
from afd_operator.planner.command import ANSWERED, NO_MANIFEST, REFUSED, main
from afd_operator.planner.errors import PlannerError
from afd_operator.planner.hardware import hardware
from afd_operator.planner.layout import Search, enumerate_layouts, largest_hidden, pareto
from afd_operator.planner.manifest import manifest
from afd_operator.planner.memory import MemoryRules
from afd_operator.planner.model import ModelSpec
from afd_operator.planner.plan import Phase, Plan, Question, plan_for
from afd_operator.planner.verdict import Answer, Reason
from afd_operator.planner.workload import Slo, Workload

YES, NO, UNSURE = Answer.DISAGGREGATE, Answer.COLOCATE, Answer.WITHIN_ERROR


def decode(name: str, context: float, system: str = "gb200-nvl72") -> Question:
    return Question(
        catalog.model(name),
        hardware(system),
        Workload.decode_at(context),
        Slo(tpot_s=0.05),
        Phase.DECODE,
        DECODE_RULES,
    )


def serve(name: str, prompt: float, answer: float, ttft: float, system: str = "gb200-nvl72") -> Question:
    return Question(catalog.model(name), hardware(system), Workload.lengths(prompt, answer), Slo(ttft, 0.05))


CASES = {
    "short prompts, experts shared by both phases": (
        serve("Qwen/Qwen3-235B-A22B-FP8", 1024, 256, 1.0),
        YES,
        Reason.GAIN,
    ),
    "wide experts, three nodes of KV": (
        serve("stepfun-ai/Step-3.7-Flash-FP8", 8192, 512, 2.0),
        YES,
        Reason.GAIN,
    ),
    "weights twice do not pay for PDD": (
        serve("moonshotai/Kimi-K2-Instruct", 1024, 256, 1.0),
        YES,
        Reason.GAIN,
    ),
    "FastAFD's row against EP32": (decode("Qwen/Qwen3-235B-A22B-FP8", 8192), UNSURE, Reason.WIDE_EP_BETTER),
    "FastAFD's row that lost to EP16": (decode("MiniMaxAI/MiniMax-M2.5", 16384), NO, Reason.WIDE_EP_BETTER),
    "latent KV is small, the batch is not the limit": (
        decode("zai-org/GLM-5.1-FP8", 8192),
        NO,
        Reason.TAX_EXCEEDS_EXPANSION,
    ),
    "very long contexts": (decode("Qwen/Qwen3-235B-A22B-FP8", 65536), NO, Reason.TAX_EXCEEDS_EXPANSION),
    "a domain of one node": (
        serve("Qwen/Qwen3-235B-A22B-FP8", 8192, 512, 9.0, "h200-x8"),
        NO,
        Reason.SINGLE_NODE_DOMAIN,
    ),
    "a step that nothing reaches": (
        replace(decode("Qwen/Qwen3-235B-A22B-FP8", 8192), slo=Slo(tpot_s=0.002)),
        NO,
        Reason.SLO_UNREACHABLE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_and_their_reasons(case: str) -> None:
    question, answer, reason = CASES[case]
    plan = plan_for(question)
    assert plan.answer is answer, plan.findings
    assert reason in [f.reason for f in plan.findings]
    assert json.loads(json.dumps(plan.as_dict()))["answer"] == answer


def test_the_same_question_has_the_same_plan() -> None:
    question = CASES["FastAFD's row against EP32"][0]
    assert plan_for(question).as_dict() == plan_for(question).as_dict()


def test_every_figure_says_unit_kind_and_source() -> None:
    plan = plan_for(CASES["FastAFD's row against EP32"][0])
    for figure in plan.figures.values():
        assert figure.unit
        assert figure.source
    assert plan.figures["speedup"].low < plan.figures["speedup"].value < plan.figures["speedup"].high
    product = (
        plan.figures["batchExpansion"].value
        * plan.figures["ffnTax"].value
        * plan.figures["latencyRatio"].value
    )
    assert product == pytest.approx(plan.figures["speedup"].value, rel=0.01)


@pytest.mark.parametrize("name", catalog.names())
def test_every_packaged_model_plans_or_refuses_with_a_reason(name: str) -> None:
    try:
        plan = plan_for(decode(name, 4096))
    except PlannerError as error:
        reason = str(error)
    else:
        reason = "; ".join(str(finding) for finding in plan.findings)
        assert all(np.isfinite(f.value) for f in plan.figures.values())
    assert len(reason) > 40


@settings(max_examples=30, deadline=None)
@given(models(), st.integers(16, 200_000), st.one_of(st.none(), st.floats(1e-4, 10)))
def test_any_legal_model_gets_an_answer_or_a_named_refusal(
    spec: ModelSpec, context: int, tpot: float | None
) -> None:
    question = Question(spec, GB200, Workload.decode_at(context), Slo(tpot_s=tpot), Phase.DECODE)
    try:
        plan = plan_for(question)
    except PlannerError:
        return
    for figure in plan.figures.values():
        assert np.isfinite(figure.value)
        assert figure.value >= 0 or figure.unit == "ratio"
    assert all(c.requests_per_s > 0 and c.batch >= 1 for c in plan.baselines)


def _search(**changes: object) -> Search:
    base = {
        "layer": layer(),
        "workload": Workload.decode_at(8192),
        "slo": Slo(tpot_s=0.05),
        "rules": DECODE_RULES,
    }
    return Search(**{**base, **changes})  # type: ignore[arg-type]


def test_the_batch_is_the_largest_within_the_target() -> None:
    """Checked against every smaller and the next larger batch, one layout at a time."""
    layouts = enumerate_layouts(layer(), with_prefill=False)
    tight = _search(slo=Slo(tpot_s=0.030))
    result = tight.evaluate(layouts)
    limit = tight._memory_limit(layouts)
    tables = tight._tables(layouts, int(limit.max()) + 1)
    largest = tight._largest_batch(layouts, tables, limit)
    _, _, now = tight._step(layouts, tables, np.maximum(largest, 1))
    _, _, more = tight._step(layouts, tables, largest + 1)
    inside = largest > 0
    assert inside.any()
    assert (now[inside] <= 30_000).all()
    assert ((more > 30_000) | (largest == limit)).all()
    assert (result.step_us[result.feasible] <= 30_000).all()


def test_more_attention_nodes_never_lower_expert_time_in_a_search() -> None:
    layouts = enumerate_layouts(layer(), with_prefill=False)
    search = _search()
    batch = np.full(len(layouts), 96)
    _, t_expert, _ = search._step(layouts, search._tables(layouts, 96), batch)
    for n in np.unique(layouts.expert):
        for k in (1, 2, 3, 4):
            mine = (layouts.expert == n) & (layouts.microbatches == k)
            order = np.argsort(layouts.attention[mine])
            assert (np.diff(t_expert[mine][order]) >= -1e-9).all()


def test_more_hbm_never_lowers_the_largest_batch() -> None:
    layouts = enumerate_layouts(layer(), with_prefill=False)
    small, large = (_search(layer=replace(layer(), hardware=bigger(GB200, f))) for f in (1.0, 1.3))
    batches = []
    for search in (small, large):
        limit = search._memory_limit(layouts)
        batches.append(search._largest_batch(layouts, search._tables(layouts, int(limit.max())), limit))
    assert (batches[1] >= batches[0]).all()
    assert (batches[1] > batches[0]).any()


def test_the_batch_kept_never_decodes_less_than_the_largest_feasible_one() -> None:
    layouts = enumerate_layouts(layer(), with_prefill=False)
    search = _search(slo=Slo())
    result, limit = search.evaluate(layouts), search._memory_limit(layouts)
    _, _, step = search._step(layouts, search._tables(layouts, int(limit.max())), np.maximum(limit, 1))
    assert (result.batch / result.step_us >= limit / step * (1 - 2e-3)).all()
    assert (result.batch < limit).any(), "some layout is better off below a tile boundary"


def test_prefill_takes_what_decode_leaves() -> None:
    """A larger decode budget never speeds prefill up and never slows decode down."""
    layouts = enumerate_layouts(layer(), with_prefill=True)
    search = _search(workload=Workload.lengths(4096, 256), slo=Slo(), rules=MemoryRules())
    result = search.evaluate(layouts)
    one = (
        (layouts.attention == 6)
        & (layouts.expert == 1)
        & (layouts.prefill == 3)
        & (layouts.microbatches == 2)
    )
    order = np.argsort(layouts.budget[one])
    assert (np.diff(result.t_expert[one][order]) <= 1e-9).all()
    assert len(order) > 10


def test_the_front_is_not_beaten_in_both() -> None:
    layouts = enumerate_layouts(layer(), with_prefill=False)
    result = _search().evaluate(layouts)
    front = pareto(result)
    assert len(front) > 3
    for i in front:
        beaten = (
            (result.step_us < result.step_us[i])
            & (result.tokens_per_s >= result.tokens_per_s[i])
            & result.feasible
        )
        assert not beaten.any()


def test_the_rule_leaves_the_margin() -> None:
    layouts = enumerate_layouts(layer(), with_prefill=False)
    result = _search().evaluate(layouts)
    i = largest_hidden(layouts, result)
    assert i is not None
    assert result.slack[i] >= 0.05


def test_layouts_stay_inside_the_domain_and_divide_the_experts() -> None:
    layouts = enumerate_layouts(layer(), spares=2, with_prefill=True)
    assert (layouts.attention + layouts.expert).max() == 16
    assert (QWEN.experts % (4 * layouts.expert) == 0).all()
    assert (layouts.prefill < layouts.attention).all()
    assert (layouts.budget < 148).all()


def _yes() -> tuple[Plan, Question]:
    question = CASES["wide experts, three nodes of KV"][0]
    return plan_for(question), question


def test_a_manifest_is_what_the_api_accepts() -> None:
    plan, question = _yes()
    document = manifest(
        plan, question, name="planned", source="pvc://models/step", image="registry.example/afd:1"
    )
    deployment = parse(document)
    assert plan.layout is not None
    assert (deployment.spec.ratio.attention, deployment.spec.ratio.expert) == (
        plan.layout.attention,
        plan.layout.expert,
    )


def test_command_prints_yaml_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    common = [
        "--model",
        "stepfun-ai/Step-3.7-Flash-FP8",
        "--hardware",
        "gb200-nvl72",
        "--prompt",
        "8192",
        "--answer",
        "512",
        "--ttft",
        "2s",
        "--tpot",
        "50ms",
    ]
    assert main([*common, "--output", "yaml"]) == ANSWERED
    assert parse(yaml.safe_load(capsys.readouterr().out)).metadata.name == "planned"
    assert main([*common, "--output", "json"]) == ANSWERED
    assert json.loads(capsys.readouterr().out)["answer"] == "disaggregate"


def test_command_explains_and_plots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = [
        "--model",
        "Qwen3-235B-A22B-FP8",
        "--hardware",
        "gb200-nvl72",
        "--context",
        "8192",
        "--explain",
    ]
    assert main([*arguments, "--plot", str(tmp_path / "p.svg")]) == ANSWERED
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    out = capsys.readouterr().out.lower()
    assert "batch expansion x ffn tax x latency ratio" in out
    assert "what would change the answer" in out


def test_command_says_no_without_a_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--model",
        "zai-org/GLM-5.1-FP8",
        "--hardware",
        "gb200-nvl72",
        "--context",
        "8192",
        "--output",
        "yaml",
    ]
    assert main(arguments) == NO_MANIFEST
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the expert GPUs cost more" in captured.err
    assert main([*arguments, "--anyway"]) == ANSWERED


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "nothing", "--hardware", "gb200-nvl72", "--context", "9"], "InvalidModel"),
        (["--model", "openai/gpt-oss-120b", "--hardware", "cray", "--context", "9"], "InvalidHardware"),
        (["--model", "openai/gpt-oss-120b", "--hardware", "gb200-nvl72"], "InvalidWorkload"),
        (
            [
                "--model",
                "openai/gpt-oss-120b",
                "--hardware",
                "gb200-nvl72",
                "--context",
                "9",
                "--tpot",
                "soon",
            ],
            "InvalidTarget",
        ),
        (
            [
                "--model",
                "openai/gpt-oss-120b",
                "--hardware",
                "gb200-nvl72",
                "--context",
                "9",
                "--kv-fraction",
                "2",
            ],
            "InvalidTarget",
        ),
        (["--model", "openai/gpt-oss-120b", "--hardware", "mi355x-x8", "--context", "9"], "MissingData"),
        (
            ["--model", "openai/gpt-oss-120b", "--hardware", "gb200-nvl72", "--trace", "/nowhere.csv"],
            "InvalidWorkload",
        ),
        (["--model", "/nowhere/config.json", "--hardware", "gb200-nvl72", "--context", "9"], "cannot read"),
    ],
)
def test_command_refuses_with_the_reason(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == REFUSED
    assert says in capsys.readouterr().err
