"""`afd simulate`: the five systems side by side at one rate, or a trace; the best setting of each by goodput."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from afd_operator.planner import catalog
from afd_operator.planner.errors import PlannerError
from afd_operator.planner.hardware import hardware
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.memory import MemoryRules
from afd_operator.planner.simulator.search import Outcome, at_rate, best_setting, judge
from afd_operator.planner.simulator.serving import Failure, Simulation, System
from afd_operator.planner.simulator.systems import KINDS, settings
from afd_operator.planner.simulator.traffic import LOOGLE, SHAREGPT, replay
from afd_operator.planner.workload import Slo, read_trace

LENGTHS = {"sharegpt": SHAREGPT, "loogle": LOOGLE}
REFUSED = 2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="afd simulate", description=__doc__)
    parser.add_argument("--model", required=True, help="a known model")
    parser.add_argument("--hardware", required=True, help="a known system")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs that each system gets (default 8)")
    parser.add_argument("--lengths", choices=sorted(LENGTHS), default="sharegpt")
    parser.add_argument("--trace", type=Path, help="replay this trace on the setting that --lengths chose")
    parser.add_argument("--system", choices=KINDS, action="append", help="only this system (may be repeated)")
    parser.add_argument("--ttft", type=float, default=1.0, help="seconds (default 1)")
    parser.add_argument("--tpot", type=float, default=0.05, help="seconds (default 0.05)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fail-at", type=float, help="lose a node at this time of the replay, in seconds")
    parser.add_argument("--fail-role", choices=("attention", "expert"), default="attention")
    parser.add_argument(
        "--repair", type=float, default=30.0, help="seconds until a lost node is back (default 30)"
    )
    arguments = parser.parse_args(argv)
    try:
        for kind in arguments.system or KINDS:
            print(json.dumps({"system": kind, **_one(arguments, kind)}), flush=True)
    except (PlannerError, OSError) as error:
        print(f"afd simulate: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


def _one(a: argparse.Namespace, kind: str) -> dict[str, object]:
    lengths, slo = LENGTHS[a.lengths], Slo(a.ttft, a.tpot)
    layer = LayerModel.of(catalog.model(a.model), hardware(a.hardware))
    rules = MemoryRules(prefill_tokens=4096)
    candidates = settings(kind, layer, a.gpus, rules, lengths.workload().decode_context_tokens)
    system, rate = best_setting(candidates, lengths, slo, seed=a.seed)
    if system is None:
        return {"setting": "misses the targets" if candidates else "does not fit"}
    out: dict[str, object] = {"setting": system.setting, "goodputRequestsPerSecond": round(rate, 3)}
    seen = _replayed(a, system, slo) if a.trace else at_rate(system, lengths, slo, rate, seed=a.seed)
    return out | {
        "attained": round(seen.attained, 3),
        "ttftSeconds": seen.ttft_p,
        "tpotSeconds": seen.tpot_p,
        "finished": seen.finished,
    }


def _replayed(a: argparse.Namespace, system: System, slo: Slo) -> Outcome:
    failures = (Failure(a.fail_at, a.repair, a.fail_role),) if a.fail_at is not None else ()
    requests = replay(read_trace(a.trace.name, a.trace.read_text()))
    return judge(Simulation(system, requests, failures).run(), slo)
