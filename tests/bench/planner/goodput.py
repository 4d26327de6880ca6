"""The five systems' goodput on ExpertPlex's models, lengths and targets: simulator-goodput.json.

    python -m tests.bench.planner.goodput [MODEL ...]

MiniMax-M2.7 runs on one node of 8 H800, GLM-5.1 on three nodes (the baselines on two, the largest layout they can
express, as in the paper), compared per node. Between nodes the link is InfiniBand: 50 GB/s for the two thirds of the
traffic that leaves a node.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from afd_operator.planner import catalog, published
from afd_operator.planner.hardware import Hardware, hardware
from afd_operator.planner.latency import EXCHANGE_EFFICIENCY, LayerModel
from afd_operator.planner.memory import MemoryRules
from afd_operator.planner.simulator.search import at_rate, best_setting
from afd_operator.planner.simulator.systems import KINDS, settings
from afd_operator.planner.simulator.traffic import LOOGLE, SHAREGPT, Lengths
from afd_operator.planner.validation import Row
from afd_operator.planner.workload import Slo

RESULT = Path(__file__).resolve().parents[1] / "results" / "simulator-goodput.json"
NODE = hardware("h800-x8")
INFINIBAND = 50e9
NODES3 = replace(
    NODE,
    name="h800-3x8",
    title="3 x 8 H800",
    nodes_per_domain=3,
    link_bytes_per_s=INFINIBAND * 1.5 / EXCHANGE_EFFICIENCY,
)
MODELS: dict[str, tuple[str, Hardware, dict[str, int]]] = {
    "MiniMax-M2.7": ("MiniMaxAI/MiniMax-M2.7", NODE, dict.fromkeys(KINDS, 8)),
    "GLM-5.1": ("zai-org/GLM-5.1-FP8", NODES3, dict.fromkeys(KINDS, 16) | {"afd": 24}),
}
RULES = MemoryRules(prefill_tokens=4096)
SEED = 1
LENGTHS = {"ShareGPT": SHAREGPT, "LooGLE": LOOGLE}
NOTES = {
    "chunked": (
        "a mixed step costs the simulator kernel time only; the paper's SGLang also loses "
        "host time and CUDA graphs in it"
    ),
    "colocated": "prefill-first without a limit: every arrival stalls decode, which a 50-100 ms target punishes",
    "pdd": "no truncation of sequences, which the paper needed to fit",
    "pdmux": "kernels slow down in proportion to their SMs; memory-bound decode kernels would lose less",
}


def run(label: str, lengths_name: str, lengths: Lengths) -> dict[str, object]:
    """All systems of one model and length distribution."""
    name, hw, gpus = MODELS[label]
    layer = LayerModel.of(catalog.model(name), hw)
    slo = Slo(*published.SERVING_SLO[label, lengths_name])
    context = lengths.workload().decode_context_tokens
    out: dict[str, object] = {}
    for kind in KINDS:
        start = time.process_time()
        candidates = settings(kind, layer, gpus[kind], RULES, context)
        system, rate = best_setting(candidates, lengths, slo, seed=SEED)
        entry: dict[str, object] = {
            "requestsPerSecondPerNode": round(rate * 8 / gpus[kind], 3),
            "gpus": gpus[kind],
        }
        if system is not None:
            seen = at_rate(system, lengths, slo, rate, seed=SEED + 1)
            entry |= {
                "setting": system.setting,
                "ttftSeconds": round(seen.ttft_p, 3),
                "tpotSeconds": round(seen.tpot_p, 4),
                "attained": round(seen.attained, 3),
            }
        else:
            entry["setting"] = "misses the targets" if candidates else "does not fit"
        out[kind] = entry | {"cpuSeconds": round(time.process_time() - start, 1)}
        print(label, lengths_name, kind, out[kind], flush=True)
    return out


def rows(results: dict[str, dict[str, dict[str, dict[str, float]]]]) -> list[Row]:
    """Goodput ratios beside the paper's."""
    out = []
    for label, by_lengths in results.items():
        for lengths, systems in by_lengths.items():
            ours = systems["afd"]["requestsPerSecondPerNode"]
            for kind, ratio in published.EXPERTPLEX_RATIOS[label, lengths].items():
                other = systems[kind]["requestsPerSecondPerNode"]
                if ratio is not None and other > 0:
                    out.append(
                        Row.of(
                            "ExpertPlex",
                            f"{label}, {lengths}: goodput over {kind}",
                            "goodput ratio, simulated",
                            ratio,
                            ours / other,
                            NOTES[kind],
                        )
                    )
    minimax = results.get("MiniMax-M2.7", {}).get("ShareGPT")
    if minimax:
        note = "the paper does not print the lengths it sampled"
        mine = minimax["afd"]["requestsPerSecondPerNode"]
        out.append(
            Row.of(
                "ExpertPlex",
                "MiniMax-M2.7, ShareGPT: requests/s per node",
                "goodput, simulated",
                published.EXPERTPLEX_MINIMAX_REQUESTS_PER_NODE,
                mine,
                note,
            )
        )
    return out


def main() -> None:
    old = json.loads(RESULT.read_text())["goodput"] if RESULT.exists() else {}
    for label in sys.argv[1:] or list(MODELS):
        old[label] = {name: run(label, name, lengths) for name, lengths in LENGTHS.items()}
    record = {
        "percentile": 90,
        "seed": SEED,
        "hardware": "H800, kernel tables of H100",
        "goodput": old,
        "validation": [row.as_dict() for row in rows(old)],
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
