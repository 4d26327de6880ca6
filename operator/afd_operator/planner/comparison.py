"""The same layout put to AIConfigurator, where it is installed: `afd plan --compare aiconfigurator`.

It prices separate MoE kernels plus an all-gather and reduce-scatter on the FFN side, not a fused
persistent kernel, so it is pessimistic about disaggregation on GB200 (docs/validation.md). We run its
command as its users do and read the two numbers that its summary prints.
"""

from __future__ import annotations

import re
import shutil
import subprocess

from afd_operator.planner.errors import MissingData
from afd_operator.planner.plan import Plan, Question

TIMEOUT_S = 300
SYSTEMS = {
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
    "b200-x8": "b200_sxm",
    "h200-x8": "h200_sxm",
    "h100-x8": "h100_sxm",
}
KV = {"bf16": "bfloat16", "fp8": "fp8"}
_FIGURE = re.compile(r"^\s+(T_[a-z0-9_]+|tokens/s/gpu):\s+([0-9][0-9,]*(?:\.[0-9]+)?)", re.MULTILINE)


def estimate_command(executable: str, plan: Plan, question: Question) -> list[str]:
    """The command line for the decode side of `plan.layout`; raises MissingData for a system it does not know."""
    layout, hw, work = plan.layout, question.hardware, question.workload
    if layout is None or hw.name not in SYSTEMS:
        raise MissingData(f"AIConfigurator has no layout to price on {hw.title}")
    ranks = layout.expert * hw.gpus_per_node
    return [
        executable,
        "cli",
        "estimate",
        "--estimate-mode",
        "afd",
        "--model-path",
        question.model.name,
        "--system",
        SYSTEMS[hw.name],
        "--backend",
        "trtllm",
        "--isl",
        f"{work.decode_context_tokens:.0f}",
        "--osl",
        "2",
        "--n-a-nodes",
        str(layout.attention - layout.prefill),
        "--n-f-nodes",
        str(layout.expert),
        "--a-tp-size",
        "1",
        "--a-batch-size",
        str(plan.batch),
        "--f-moe-ep-size",
        str(ranks),
        "--num-microbatches",
        str(max(2, layout.microbatches)),
        "--no-afd-combined-with-pd",
        "--kvcache-quant-mode",
        KV[question.rules.kv_dtype],
        "--fmha-quant-mode",
        "bfloat16",
    ]


def aiconfigurator(plan: Plan, question: Question) -> dict[str, float]:
    """Its figures for the plan's layout; raises MissingData when it is not installed or fails."""
    executable = shutil.which("aiconfigurator")
    if executable is None:
        raise MissingData("aiconfigurator is not on PATH: pip install aiconfigurator")
    command = estimate_command(executable, plan, question)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise MissingData(f"aiconfigurator did not answer within {TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no output"]
        raise MissingData(f"aiconfigurator refused: {last[0]}")
    return figures(done.stdout)


def figures(output: str) -> dict[str, float]:
    """Layer times (ms), step (ms) and tokens/s/gpu in AIConfigurator's summary box, by its labels."""
    return {label: float(value.replace(",", "")) for label, value in _FIGURE.findall(output)}
