"""`afd plan`: the shell around the pure planner. Reads files and arguments, prints an answer.

Exit codes: 0 an answer (yes, no, or within error), 1 the answer has no manifest to print, 2 refused
(malformed input or missing data; the reason is on stderr).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from afd_operator.planner import catalog
from afd_operator.planner.errors import InvalidModel, InvalidTarget, InvalidWorkload, PlannerError
from afd_operator.planner.hardware import hardware
from afd_operator.planner.hardware import names as hardware_names
from afd_operator.planner.latency import Assumptions
from afd_operator.planner.memory import KV_ELEMENT_BYTES, KV_FRACTION, MemoryRules
from afd_operator.planner.model import ModelSpec, read_config
from afd_operator.planner.plan import Phase, Plan, Planner, Question, what_would_change
from afd_operator.planner.profile import Profile, read_profile
from afd_operator.planner.verdict import Answer
from afd_operator.planner.workload import Slo, Workload, read_trace

ANSWERED, NO_MANIFEST, REFUSED = 0, 1, 2
MAX_FILE_BYTES = 256 * 1024 * 1024
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s)?")


def main(argv: list[str] | None = None) -> int:
    """Entry point of `afd plan`."""
    arguments = _parser().parse_args(argv)
    try:
        return _plan(arguments)
    except PlannerError as error:
        print(f"afd plan: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="afd plan",
        description="Whether to disaggregate a model on a rack for a service level, and how to lay it out.",
    )
    parser.add_argument(
        "--model",
        required=True,
        help="a known name (Qwen/Qwen3-235B-A22B-FP8), or a config.json or its folder",
    )
    parser.add_argument("--hardware", required=True, help=f"one of {', '.join(hardware_names())}")
    parser.add_argument(
        "--profile", type=Path, help="CSV of your own kernel timings, instead of the packaged ones"
    )
    work = parser.add_argument_group("workload (one of --trace, --prompt with --answer, --context)")
    work.add_argument(
        "--trace", type=Path, help="CSV with arrival, prompt and output columns (Mooncake or Azure layout)"
    )
    work.add_argument("--prompt", type=float, metavar="TOKENS", help="mean prompt length")
    work.add_argument("--answer", type=float, metavar="TOKENS", help="mean answer length")
    work.add_argument(
        "--context", type=float, metavar="TOKENS", help="decode only, every token at this context"
    )
    parser.add_argument(
        "--phase", choices=[p.value for p in Phase], help="decode only, or prefill and decode (default)"
    )
    parser.add_argument("--ttft", help="target, like 2s")
    parser.add_argument("--tpot", help="target, like 50ms")
    parser.add_argument(
        "--percentile", type=float, default=90.0, help="of requests that must meet the targets (default 90)"
    )
    parser.add_argument("--kv-dtype", choices=sorted(KV_ELEMENT_BYTES), default="bf16")
    parser.add_argument(
        "--kv-fraction", type=float, default=KV_FRACTION, help=f"share of HBM to use (default {KV_FRACTION})"
    )
    parser.add_argument("--spares", type=int, default=0, help="nodes of the domain that stay free")
    parser.add_argument(
        "--skewed", action="store_true", help="time experts under skewed routing (power law 1.2)"
    )
    parser.add_argument(
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="yaml: an AFDDeployment ready to apply",
    )
    parser.add_argument(
        "--explain", action="store_true", help="the three factors, and what would change the answer"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write four plots as .svg or .png")
    parser.add_argument(
        "--compare", choices=("aiconfigurator",), help="put the layout to another estimator, where installed"
    )
    parser.add_argument("--name", default="planned", help="metadata.name of the YAML")
    parser.add_argument("--source", default="pvc://models", help="model source in the YAML")
    parser.add_argument("--image", default="afd-runtime:latest", help="runtime image in the YAML")
    parser.add_argument("--anyway", action="store_true", help="print the YAML although the answer is not yes")
    return parser


def _plan(arguments: argparse.Namespace) -> int:
    question = _question(arguments)
    planner = Planner(question)
    plan = planner.plan()
    if arguments.plot:
        from afd_operator.planner.plot import draw

        draw(planner, plan, arguments.plot)
    match arguments.output:
        case "json":
            print(json.dumps({"question": _asked(question), **plan.as_dict()}, indent=2))
        case "yaml":
            return _yaml(arguments, plan, question)
        case _:
            _table(arguments, plan, question)
    return ANSWERED


def _table(arguments: argparse.Namespace, plan: Plan, question: Question) -> None:
    from rich.console import Console

    from afd_operator.planner.render import explanation, plan_table

    console = Console()
    plan_table(console, question, plan)
    if arguments.explain:
        explanation(console, plan, what_would_change(question))
    if arguments.compare:
        from afd_operator.planner.comparison import aiconfigurator

        for label, value in aiconfigurator(plan, question).items():
            console.print(f"aiconfigurator {label}: {value:g}", highlight=False)


def _yaml(arguments: argparse.Namespace, plan: Plan, question: Question) -> int:
    import yaml

    from afd_operator.planner.manifest import manifest

    if plan.layout is None or (plan.answer is not Answer.DISAGGREGATE and not arguments.anyway):
        why = plan.findings[0].text
        print(
            f"afd plan: no manifest, the answer is {plan.answer}: {why}"
            + ("" if plan.layout is None else " (--anyway prints it)"),
            file=sys.stderr,
        )
        return NO_MANIFEST
    document = manifest(plan, question, name=arguments.name, source=arguments.source, image=arguments.image)
    print(f"# afd plan: {plan.answer}; {plan.findings[0].text}")
    print(yaml.safe_dump(document, sort_keys=False), end="")
    return ANSWERED


def _question(a: argparse.Namespace) -> Question:
    if not 0 < a.kv_fraction <= 1:
        raise InvalidTarget(f"--kv-fraction {a.kv_fraction} is not a share between 0 and 1")
    if a.spares < 0:
        raise InvalidTarget(f"--spares {a.spares} is negative")
    workload, decode_only = _workload(a)
    phase = Phase(a.phase) if a.phase else (Phase.DECODE if decode_only else Phase.SERVE)
    slo = Slo(_seconds("--ttft", a.ttft), _seconds("--tpot", a.tpot), a.percentile)
    return Question(
        model=_model(a.model),
        hardware=hardware(a.hardware),
        workload=workload,
        slo=slo,
        phase=phase,
        rules=MemoryRules(kv_fraction=a.kv_fraction, kv_dtype=a.kv_dtype),
        assume=Assumptions(skewed_routing=a.skewed, kv_dtype=a.kv_dtype),
        profile=_profile(a.profile),
        spares=a.spares,
    )


def _model(text: str) -> ModelSpec:
    path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix != ".json":
        return catalog.model(text)
    try:
        quantisation = path.parent / "hf_quant_config.json"
        beside = json.loads(_read(quantisation)) if quantisation.is_file() else None
        return read_config(path.parent.name or text, json.loads(_read(path)), beside)
    except json.JSONDecodeError as error:
        raise InvalidModel(f"{path} is not JSON: {error}") from None


def _workload(a: argparse.Namespace) -> tuple[Workload, bool]:
    """The workload, and whether it can only be decoded."""
    if a.trace:
        return read_trace(a.trace.name, _read(a.trace)).workload(), False
    if a.context:
        return Workload.decode_at(a.context), True
    if a.prompt is None or a.answer is None:
        raise InvalidWorkload("say what is asked: --trace FILE, or --prompt and --answer, or --context")
    return Workload.lengths(a.prompt, a.answer), False


def _profile(path: Path | None) -> Profile | None:
    return None if path is None else read_profile(path.name, str(path), _read(path))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidWorkload(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidWorkload(f"cannot read {path}: {error}") from None


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidTarget(f"{option} {text!r} is not a time like 2s or 50ms")
    return float(match[1]) * (1e-3 if match[2] == "ms" else 1.0)


def _asked(q: Question) -> dict[str, Any]:
    work, slo = q.workload, q.slo
    return {
        "model": q.model.name,
        "hardware": q.hardware.name,
        "phase": str(q.phase),
        "promptTokens": work.prompt_tokens,
        "outputTokens": work.output_tokens,
        "decodeContextTokens": work.decode_context_tokens,
        "requestsPerSecond": work.rate,
        "ttftSeconds": slo.ttft_s,
        "tpotSeconds": slo.tpot_s,
        "percentile": slo.percentile,
        "kvDtype": q.rules.kv_dtype,
        "kvFraction": q.rules.kv_fraction,
        "skewedRouting": q.assume.skewed_routing,
        "spares": q.spares,
    }
