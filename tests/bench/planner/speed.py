"""How fast the search is, and AIConfigurator beside it where it is installed: planner-speed.json.

python -m tests.bench.planner.speed
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import time
from pathlib import Path

from afd_operator.planner import catalog
from afd_operator.planner.hardware import hardware
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.layout import Search, enumerate_layouts
from afd_operator.planner.memory import MemoryRules
from afd_operator.planner.workload import Slo, Workload

RESULT = Path(__file__).resolve().parents[1] / "results" / "planner-speed.json"
MODEL, SYSTEM = "Qwen/Qwen3-235B-A22B-FP8", "gb200-nvl72"
ROUNDS = 5
SWEEP_TIMEOUT_S = 400


def ours() -> dict[str, object]:
    """Enumerate and evaluate over 10^5 layouts, cold tables each time, best and worst of ROUNDS."""
    model, hw = catalog.model(MODEL), hardware(SYSTEM)
    seconds = []
    count = 0
    for _ in range(ROUNDS):
        start, cpu = time.perf_counter(), time.process_time()
        layer = LayerModel.of(model, hw)
        layouts = enumerate_layouts(layer, with_prefill=True, budget_step=2)
        Search(layer, Workload.lengths(8192, 512), Slo(2.0, 0.05), MemoryRules()).evaluate(layouts)
        seconds.append((time.perf_counter() - start, time.process_time() - cpu))
        count = len(layouts)
    return {
        "layouts": count,
        "wallSeconds": [round(w, 3) for w, _ in seconds],
        "cpuSeconds": [round(c, 3) for _, c in seconds],
        "cores": 1,
        "peakMemoryMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def aiconfigurator() -> dict[str, object]:
    """Its own sweep (agg and disagg) and its AFD sweep for one rack, as its command line runs them."""
    executable = shutil.which("aiconfigurator")
    if executable is None:
        return {"installed": False}
    out: dict[str, object] = {"installed": True}
    common = [
        "--model-path",
        MODEL,
        "--system",
        "gb200",
        "--isl",
        "8192",
        "--osl",
        "512",
        "--ttft",
        "2000",
        "--tpot",
        "50",
        "--backend",
        "trtllm",
    ]
    for name, extra in {
        "aggregatedAndDisaggregated32Gpus": ["--total-gpus", "32", "--serving-mode", "auto"],
        "afd72Gpus": ["--total-gpus", "72", "--serving-mode", "afd"],
    }.items():
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [executable, "cli", "default", *common, *extra],
                capture_output=True,
                text=True,
                timeout=SWEEP_TIMEOUT_S,
                check=False,
            )
            out[name] = {"seconds": round(time.perf_counter() - start, 1), "exitCode": done.returncode}
        except subprocess.TimeoutExpired:
            out[name] = {"seconds": f"> {SWEEP_TIMEOUT_S}", "exitCode": None}
    return out


def main() -> None:
    result = {
        "model": MODEL,
        "hardware": SYSTEM,
        "planner": ours(),
        "aiconfigurator 0.12.0": aiconfigurator(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
