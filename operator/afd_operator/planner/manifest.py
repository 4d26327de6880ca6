"""A plan as an AFDDeployment, ready for `kubectl apply`.

The planner does not import the API: a manifest is plain data, and the tests put it through the API's own
parser, so that the two cannot drift apart.
"""

from __future__ import annotations

import math

from afd_operator.planner.plan import Plan, Question

API_VERSION = "afd.dev/v1alpha1"


def manifest(plan: Plan, question: Question, *, name: str, source: str, image: str) -> dict[str, object]:
    """The AFDDeployment of `plan.layout`; raises ValueError for a plan without a layout."""
    layout = plan.layout
    if layout is None:
        raise ValueError("a plan without a layout has no manifest")
    work, slo = question.workload, question.slo
    context = int(math.ceil((work.prompt_tokens + work.output_tokens) / 1024) * 1024)
    budget: dict[str, object] = {"mode": "Auto"}
    if layout.boundary_sms is not None:
        budget = {"boundary": layout.boundary_sms, "decode": layout.decode_sms}
    targets = {"ttft": _duration(slo.ttft_s), "tpot": _duration(slo.tpot_s)}
    spec: dict[str, object] = {
        "model": {
            "id": question.model.name,
            "source": source,
            "contextLength": context,
            "kvCacheDtype": question.rules.kv_dtype,
        },
        "units": 1,
        "ratio": {"attention": layout.attention, "expert": layout.expert, "prefill": layout.prefill},
        "microbatches": layout.microbatches,
        "smBudget": budget,
        "placement": {"gpusPerNode": question.hardware.gpus_per_node, "spares": question.spares},
        "runtime": {"image": image},
    }
    if any(targets.values()):
        spec["slo"] = {k: v for k, v in targets.items() if v} | {"percentile": round(question.slo.percentile)}
    return {"apiVersion": API_VERSION, "kind": "AFDDeployment", "metadata": {"name": name}, "spec": spec}


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"{max(1, round(seconds * 1000))}ms"
