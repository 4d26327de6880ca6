"""`plan_for`: model, system, workload and service level in; the answer, the layout and the evidence out.

The operator's `mode: Auto` calls it at admission and on drift and puts `Plan.as_dict()` into the status;
`afd plan` prints the same. It is a pure function of its arguments and of the packaged tables: the same
inputs give the same plan, and `VERSION` changes when the formulas or the tables do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from afd_operator.planner import baselines, uncertainty
from afd_operator.planner.errors import MissingData, PlannerError
from afd_operator.planner.figure import Figure, Kind
from afd_operator.planner.hardware import Hardware
from afd_operator.planner.latency import EXCHANGE_SIGMA, Assumptions, LayerModel
from afd_operator.planner.layout import MARGIN, Evaluation, Layouts, Search, enumerate_layouts, most_rate
from afd_operator.planner.memory import MemoryRules
from afd_operator.planner.model import ModelSpec
from afd_operator.planner.profile import Profile
from afd_operator.planner.verdict import Answer, Facts, Finding, Reason, judge
from afd_operator.planner.workload import Slo, Workload

VERSION = "1"
"""Of the formulas and packaged tables; recorded with every plan."""

PREFILL_SIGMA = 0.10
"""Relative error added to serving comparisons: prefill attention and GEMM fits, docs/validation.md."""


DISCREPANCY_SIGMA = 0.064
"""What the parts' errors do not explain: RMS of ours against the eight speedups that FastAFD publishes over EP4
and EP16 (docs/validation.md; a test keeps the two equal)."""


class Phase(StrEnum):
    """What the unit does: decode only (prompts are prefilled elsewhere), or both."""

    DECODE = "decode"
    SERVE = "serve"


@dataclass(frozen=True)
class Question:
    """Everything a plan depends on."""

    model: ModelSpec
    hardware: Hardware
    workload: Workload
    slo: Slo = field(default_factory=Slo)
    phase: Phase = Phase.SERVE
    rules: MemoryRules = field(default_factory=MemoryRules)
    assume: Assumptions = field(default_factory=Assumptions)
    profile: Profile | None = None
    spares: int = 0
    budget_step: int = 8


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The chosen layout of one unit, in nodes and SMs."""

    attention: int
    expert: int
    prefill: int
    microbatches: int
    decode_sms: int
    boundary_sms: int | None

    @property
    def ratio(self) -> str:
        return f"{self.attention}:{self.expert}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer. `layout` and its figures are None where no layout exists."""

    answer: Answer
    findings: tuple[Finding, ...]
    phase: Phase
    layout: Layout | None
    batch: int
    figures: dict[str, Figure]
    best_baseline: baselines.Candidate | None
    baselines: tuple[baselines.Candidate, ...]
    layouts_searched: int
    version: str = VERSION

    def as_dict(self) -> dict[str, object]:
        """JSON-ready, for the status and for `--output json`."""
        layout = self.layout
        return {
            "version": self.version,
            "answer": str(self.answer),
            "reasons": [{"reason": str(f.reason), "text": f.text} for f in self.findings],
            "phase": str(self.phase),
            "layout": None
            if layout is None
            else {
                "attention": layout.attention,
                "expert": layout.expert,
                "prefill": layout.prefill,
                "microbatches": layout.microbatches,
                "smBudget": {"boundary": layout.boundary_sms, "decode": layout.decode_sms},
            },
            "batchPerGpu": self.batch,
            "figures": {name: figure.as_dict() for name, figure in self.figures.items()},
            "baselines": [
                {
                    "system": c.system,
                    "setting": c.setting,
                    "batchPerGpu": c.batch,
                    "stepSeconds": c.step_s,
                    "requestsPerSecondPerGpu": c.requests_per_s,
                    "tokensPerSecondPerGpu": c.tokens_per_s,
                }
                for c in self.baselines
            ],
            "layoutsSearched": self.layouts_searched,
        }


def plan_for(question: Question) -> Plan:
    """The plan; raises a PlannerError where the inputs are malformed or the data are missing."""
    return Planner(question).plan()


class Planner:
    """One question's search: the layouts, their evaluation and the baselines, kept for plots and explanation."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.layer = LayerModel.of(question.model, question.hardware, question.assume, question.profile)
        self.search = Search(self.layer, question.workload, question.slo, question.rules)
        self.layouts: Layouts | None = None
        self.result: Evaluation | None = None

    def plan(self) -> Plan:
        q = self.question
        found = self._baselines()
        if q.hardware.nodes_per_domain - q.spares < 2:
            text = f"{q.hardware.title} has one node in its NVLink domain: attention and experts need a node each"
            return self._no_layout(Reason.SINGLE_NODE_DOMAIN, text, found)
        self.layouts = enumerate_layouts(
            self.layer, spares=q.spares, with_prefill=q.phase is Phase.SERVE, budget_step=q.budget_step
        )
        if len(self.layouts) == 0:
            text = (
                f"no number of nodes in a domain of {q.hardware.nodes_per_domain} divides the "
                f"{q.model.experts} experts over their GPUs"
            )
            return self._no_layout(Reason.NO_LAYOUT_FITS, text, found)
        self.result = self.search.evaluate(self.layouts)
        chosen = most_rate(self.layouts, self.result)
        if chosen is None:
            return self._no_layout(*self._why_none(), found)
        if not found:
            raise MissingData(
                f"{q.model.name}: no colocated system fits one domain of "
                f"{q.hardware.title} under this service level: nothing to compare with"
            )
        return self._compare(chosen, found)

    def _baselines(self) -> list[baselines.Candidate]:
        q = self.question
        run = baselines.decode if q.phase is Phase.DECODE else baselines.serving
        found = run(self.layer, q.workload, q.slo, q.rules)
        return sorted(found, key=lambda c: -c.requests_per_s)

    def _why_none(self) -> tuple[Reason, str]:
        q, result = self.question, self.result
        if result is None or not result.fits.any():
            text = (
                f"no layout holds {q.model.name}: {q.model.expert_bytes / 1e9:.0f} GB of "
                f"experts, {q.model.dense_bytes / 1e9:.0f} GB of dense "
                "weights a lane and one request of "
                f"{q.model.kv_bytes(q.workload.decode_context_tokens, q.rules.kv_element_bytes) / 1e9:.2f} GB KV"
            )
            return Reason.NO_LAYOUT_FITS, text
        fastest = float(result.step_us[result.fits].min()) / 1e3
        prefill = result.prefill_us[result.fits & (result.prefill_us > 0)]
        text = f"no layout meets the targets: the shortest decode step is {fastest:.1f} ms"
        return Reason.SLO_UNREACHABLE, text + (
            f", the shortest prefill {prefill.min() / 1e6:.2f} s" if prefill.size else ""
        )

    def _no_layout(self, reason: Reason, text: str, found: list[baselines.Candidate]) -> Plan:
        return Plan(
            answer=Answer.COLOCATE,
            findings=(Finding(reason, text),),
            phase=self.question.phase,
            layout=None,
            batch=0,
            figures={},
            best_baseline=found[0] if found else None,
            baselines=best_of_each(found),
            layouts_searched=0 if self.layouts is None else len(self.layouts),
        )

    def _compare(self, i: int, found: list[baselines.Candidate]) -> Plan:
        q, layouts, r = self.question, self.layouts, self.result
        assert layouts is not None
        assert r is not None
        best = found[0]
        serving = q.phase is Phase.SERVE
        layout = Layout(
            attention=int(layouts.attention[i]),
            expert=int(layouts.expert[i]),
            prefill=int(layouts.prefill[i]),
            microbatches=int(layouts.microbatches[i]),
            decode_sms=int(layouts.budget[i]),
            boundary_sms=q.hardware.boundary_sms,
        )
        decode_share = float(layouts.decode[i]) / (layout.attention + layout.expert)
        batch, step_s = int(r.batch[i]), float(r.step_us[i]) * 1e-6
        speedup = float(r.requests_per_s[i]) / best.requests_per_s
        sources = self._error(i, best)
        sigma = math.hypot(uncertainty.total(sources), DISCREPANCY_SIGMA, PREFILL_SIGMA if serving else 0.0)
        gain = Figure.spread(
            speedup, "x", Kind.MODEL, f"requests per GPU over {best.system} {best.setting}", sigma=sigma
        )
        narrow = min((c for c in found if c.system == best.system), key=lambda c: c.ep)
        facts = Facts(
            speedup=speedup,
            low=float(gain.low or 0.0),
            expansion=batch / best.batch,
            tax=decode_share,
            latency_ratio=best.step_s / step_s,
            t_attention_us=float(r.t_attention[i]),
            t_expert_us=float(r.t_expert[i]),
            t_transfer_us=r.t_transfer,
            wire_us=self._wire_us(i),
            microbatches=layout.microbatches,
            batch=batch,
            margin=MARGIN,
            baseline=f"{best.system} {best.setting}",
            baseline_ep=best.ep,
            narrow_ep=narrow.ep,
            speedup_over_narrow=float(r.requests_per_s[i]) / narrow.requests_per_s,
            decode_only=not serving,
        )
        answer, findings = judge(facts)
        return Plan(
            answer=answer,
            findings=findings,
            phase=q.phase,
            layout=layout,
            batch=batch,
            figures=self._figures(i, gain, facts, sources),
            best_baseline=best,
            baselines=best_of_each(found),
            layouts_searched=len(layouts),
        )

    def _wire_us(self, i: int) -> float:
        assert self.layouts is not None
        assert self.result is not None
        per = self.question.hardware.gpus_per_node
        tokens = float(self.layouts.decode[i] * per * self.result.batch[i] / self.layouts.microbatches[i])
        return float(self.layer.wire_us(tokens, int(self.layouts.expert[i]) * per))

    def _error(self, i: int, best: baselines.Candidate) -> dict[str, float]:
        """Contributions to the standard deviation of log(speedup)."""
        assert self.layouts is not None
        assert self.result is not None
        q, layer, r = self.question, self.layer, self.result
        per, m = q.hardware.gpus_per_node, int(self.layouts.microbatches[i])
        context, batch = q.workload.decode_context_tokens, float(r.batch[i])
        ranks, lanes = int(self.layouts.expert[i]) * per, int(self.layouts.decode[i]) * per
        small, small_sd = (us * q.model.layers / q.model.moe_layers for us in layer.small_kernels)
        dense, colo = (
            float(layer.dense_us(batch / m)),
            layer.colocated_us(float(best.batch), context, best.ep),
        )
        parts = uncertainty.Parts(
            attention=float(r.t_attention[i]) - dense,
            gemms=max(dense - small, 0.1),
            small=small,
            experts=float(r.t_expert[i]),
            transfer=r.t_transfer,
            coloc_attention=float(colo.attention),
            coloc_gemms=max(float(colo.dense) - small, 0.1),
            coloc_small=small,
            coloc_experts=float(colo.experts),
            coloc_exchange=float(colo.exchange),
        )
        sigmas = uncertainty.Sigmas(
            attention=layer.attention_sigma(batch / m, context),
            gemms=layer.profile.gemm("bf16").sigma,
            small=small_sd / max(small, 1e-9),
            experts=layer.experts_sigma(lanes * batch / m, ranks),
            exchange=EXCHANGE_SIGMA / 2,
            fused=layer.assume.expert_sigma,
        )
        return uncertainty.contributions(parts, sigmas, microbatches=m, layers=q.model.moe_layers)

    def _figures(self, i: int, gain: Figure, f: Facts, sources: dict[str, float]) -> dict[str, Figure]:
        assert self.result is not None
        q, r, layer = self.question, self.result, self.layer
        per_microbatch = r.batch[i] / f.microbatches
        attention = layer.attention_sigma(float(per_microbatch), q.workload.decode_context_tokens)
        dense = layer.dense_sigma(float(per_microbatch))
        share = float(layer.dense_us(per_microbatch)) / f.t_attention_us
        sigma_a = float(np.hypot(attention * (1 - share), dense * share))
        sigma_e = float(np.hypot(layer.assume.expert_sigma, sources["experts"]))
        profile = layer.profile.source
        out = {
            "speedup": gain,
            "attentionTime": Figure.spread(
                f.t_attention_us, "us", Kind.MODEL, f"T_a; {profile}", sigma=sigma_a
            ),
            "expertTime": Figure.spread(
                f.t_expert_us,
                "us",
                Kind.MODEL,
                f"T_e; {profile}, eta {layer.assume.expert_efficiency:g}",
                sigma=sigma_e,
            ),
            "transferTime": Figure(
                f.t_transfer_us, "us", Kind.MODEL, "T_c: latency and one tile over the link"
            ),
            "ffnSlack": Figure(float(r.slack[i]), "ratio", Kind.MODEL, "(T_a - T_e) / T_a"),
            "stepTime": Figure.spread(
                float(r.step_us[i]) / 1e3,
                "ms",
                Kind.MODEL,
                "layer cycle x layers; LM head",
                sigma=max(sigma_a, sigma_e * (f.t_expert_us > f.t_attention_us)),
            ),
            "requestsPerSecondPerGpu": Figure(
                float(r.requests_per_s[i]), "1/s", Kind.MODEL, "goodput of the unit over its GPUs"
            ),
            "tokensPerSecondPerGpu": Figure(
                float(r.tokens_per_s[i]), "1/s", Kind.MODEL, "decoded tokens of the unit over its GPUs"
            ),
        }
        if f.decode_only:
            # The identity S = expansion x tax x latency ratio; serving has a second bottleneck and no such product.
            out["batchExpansion"] = Figure(
                f.expansion, "x", Kind.MODEL, "requests that fit, over the baseline's batch"
            )
            out["ffnTax"] = Figure(f.tax, "share of GPUs", Kind.MODEL, "M/(M+N)")
            out["latencyRatio"] = Figure(
                f.latency_ratio, "x", Kind.MODEL, "baseline step over the unit's step"
            )
        else:
            out["prefillTime"] = Figure.spread(
                float(r.prefill_us[i]) / 1e6, "s", Kind.MODEL, "T_p of one prefill pass", sigma=PREFILL_SIGMA
            )
        return out


def best_of_each(found: list[baselines.Candidate]) -> tuple[baselines.Candidate, ...]:
    """The best setting of each (system, EP width), best first."""
    seen: dict[tuple[str, int], baselines.Candidate] = {}
    for candidate in found:
        seen.setdefault((candidate.system, candidate.ep), candidate)
    return tuple(seen.values())


def what_would_change(question: Question) -> list[tuple[str, str]]:
    """(change, its outcome): the plan redone under one changed input each."""
    hw, work = question.hardware, question.workload
    longer = replace(
        work,
        prompt_tokens=work.prompt_tokens * 2,
        decode_context_tokens=work.decode_context_tokens * 2,
        decode_context_sd=work.decode_context_sd * 2,
    )
    changes = [
        ("twice the context", replace(question, workload=longer)),
        ("half again the HBM", replace(question, hardware=replace(hw, hbm_bytes=hw.hbm_bytes * 1.5))),
        (
            "a fused expert kernel 20 % faster",
            replace(
                question,
                assume=replace(question.assume, expert_efficiency=question.assume.expert_efficiency * 0.8),
            ),
        ),
        (
            "skewed routing (power law 1.2)",
            replace(question, assume=replace(question.assume, skewed_routing=True)),
        ),
        (
            "FP8 KV cache",
            replace(
                question,
                rules=replace(question.rules, kv_dtype="fp8"),
                assume=replace(question.assume, kv_dtype="fp8"),
            ),
        ),
    ]
    out = []
    for text, changed in changes:
        if changed == question:
            continue
        try:
            plan = plan_for(changed)
        except PlannerError as error:
            out.append((text, f"refused: {error}"))
            continue
        gain = plan.figures.get("speedup")
        ratio = (
            "no layout" if plan.layout is None or gain is None else f"{plan.layout.ratio}, {gain.value:.2f}x"
        )
        out.append((text, f"{plan.answer}: {ratio}"))
    return out
