"""The colocated systems that disaggregation must beat, each at its best setting.

    decode     DP attention + EP experts at every EP width of the domain, one batch or two (TBO)
    chunked    the same, each step also carries a chunk of prefill                 (Sarathi)
    colocated  the same, whole prompts run between decode steps
    pdd        separate prefill and decode instances, weights held twice           (DistServe)
    pdmux      prefill and decode side by side on fixed shares of the SMs          (MuxWise)

A weak baseline makes any system look good: FastAFD's +41 % against EP4 is +8 % against EP16. Goodput is
requests per second and paid GPU; a request needs one pass over its prompt and O decode iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from afd_operator.planner.barrier import stretch
from afd_operator.planner.errors import MissingData
from afd_operator.planner.fit import Array, Values
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.memory import MemoryRules, batch_that_fits, colocated_kv_bytes
from afd_operator.planner.workload import Slo, Workload

MAX_BATCH = 4096
"""Requests a GPU decodes at once at most: far above what any engine's graphs cover."""
CHUNKS = (256, 512, 1024, 2048, 4096, 8192)
PDMUX_SHARES = (0.25, 0.375, 0.5, 0.625, 0.75)
"""Decode's share of the SMs; Green Contexts split in steps of 8 SMs."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One system at one setting. Times in seconds, rates per paid GPU."""

    system: str
    setting: str
    ep: int
    batch: int
    step_s: float
    requests_per_s: float
    tokens_per_s: float
    ttft_s: float | None = None
    parts_us: dict[str, float] | None = None
    """Attention, dense, experts, exchange of one layer."""


@dataclass(frozen=True)
class Colocated:
    """Step times of one DP/EP group of `ep` GPUs."""

    layer: LayerModel
    workload: Workload
    ep: int

    def step_s(self, batch: Values, *, two_batches: bool = False) -> Array:
        """A decode step; with two batches the exchange of one hides behind the work of the other."""
        parts = self.layer.colocated_us(
            np.asarray(batch) / (2 if two_batches else 1), self.workload.decode_context_tokens, self.ep
        )
        late = stretch(
            self.ep, batch, mean=self.workload.decode_context_tokens, sd=self.workload.decode_context_sd
        )
        work = parts.attention * late + parts.dense + parts.experts
        layer = 2.0 * np.maximum(work, parts.exchange) if two_batches else work + parts.exchange
        model = self.layer.model
        return np.asarray(layer * model.moe_layers + self.layer.head_us(batch)) * 1e-6

    def prefill_s(self, prompts: Values, share: float = 1.0) -> Array:
        """Seconds for `prompts` whole prompts a GPU on `share` of its SMs."""
        tokens = np.asarray(prompts) * self.workload.prompt_tokens
        return self._prefill_us(tokens, prompts) * 1e-6 / share

    def _prefill_us(self, tokens: Values, prompts: Values) -> Array:
        layer = self.layer
        attention = layer.attention_us(prompts, self.workload.prompt_tokens, "prefill")
        each = attention + layer.dense_us(tokens) + layer.experts_us(np.asarray(tokens) * self.ep, self.ep)
        exchange = layer.exchange_us("dispatch", tokens, self.ep) + layer.exchange_us(
            "combine", tokens, self.ep
        )
        return (each + exchange) * layer.model.moe_layers

    def chunk_step_s(self, batch: Values, chunk: float) -> Array:
        """A step of `batch` decode tokens and `chunk` prefill tokens a GPU.

        The chunk re-reads the KV of the prompt before it: on average half a prompt per chunk, at the
        cost of decode attention over it.
        """
        layer, model = self.layer, self.layer.model
        context = self.workload.decode_context_tokens
        own = layer.attention_us(batch, context)
        share = min(1.0, chunk / self.workload.prompt_tokens)
        prefill = layer.attention_us(1.0, self.workload.prompt_tokens, "prefill") * share
        prefill = prefill + layer.attention_us(1.0, max(1.0, self.workload.prompt_tokens / 2))
        tokens = np.asarray(batch) + chunk
        rest = layer.dense_us(tokens) + layer.experts_us(tokens * self.ep, self.ep)
        exchange = layer.exchange_us("dispatch", tokens, self.ep) + layer.exchange_us(
            "combine", tokens, self.ep
        )
        return np.asarray((own + prefill + rest + exchange) * model.moe_layers + layer.head_us(batch)) * 1e-6


def ep_widths(layer: LayerModel) -> list[int]:
    """EP groups inside one domain: whole nodes (or divisors of one) that divide the experts."""
    hw, experts = layer.hardware, layer.model.experts
    widths = {n * hw.gpus_per_node for n in range(1, hw.nodes_per_domain + 1)}
    widths |= {w for w in (4,) if hw.gpus_per_node % w == 0}
    return [w for w in sorted(widths) if experts % w == 0]


def fitting(layer: LayerModel, workload: Workload, rules: MemoryRules, ep: int) -> int:
    """Requests that fit on a GPU of an EP group; 0 when the weights do not."""
    kv = colocated_kv_bytes(layer.model, layer.hardware, ep, rules)
    return (
        min(MAX_BATCH, batch_that_fits(layer.model, kv, workload.decode_context_tokens, rules))
        if kv > 0
        else 0
    )


def decode(layer: LayerModel, workload: Workload, slo: Slo, rules: MemoryRules) -> list[Candidate]:
    """Decode alone, best batch and overlap for every EP width that fits."""
    found = []
    for ep in ep_widths(layer):
        limit = fitting(layer, workload, rules, ep)
        if limit == 0:
            continue
        group = Colocated(layer, workload, ep)
        batches = np.arange(1, limit + 1, dtype=float)
        one, two = group.step_s(batches), group.step_s(batches, two_batches=True)
        two[batches < 2] = np.inf
        steps = np.minimum(one, two)
        best = _largest_rate(batches, steps, slo)
        if best is None:
            continue
        batch, step = batches[best], float(steps[best])
        overlap = bool(two[best] < one[best])
        parts = layer.colocated_us(batch / (2 if overlap else 1), workload.decode_context_tokens, ep)
        found.append(
            Candidate(
                system="decode",
                setting=f"EP{ep}{', two batches' if overlap else ''}",
                ep=ep,
                batch=int(batch),
                step_s=step,
                requests_per_s=float(batch / step / workload.output_tokens),
                tokens_per_s=float(batch / step),
                parts_us={k: float(getattr(parts, k)) for k in ("attention", "dense", "experts", "exchange")},
            )
        )
    return found


def _largest_rate(batches: Array, steps: Array, slo: Slo) -> int | None:
    """Index of the batch with most tokens per second among those within the TPOT target."""
    allowed = steps <= (slo.tpot_s or math.inf)
    if not allowed.any():
        return None
    return int(np.argmax(np.where(allowed, batches / steps, 0.0)))


def serving(layer: LayerModel, workload: Workload, slo: Slo, rules: MemoryRules) -> list[Candidate]:
    """Prefill and decode together: every colocated system at every EP width and setting."""
    found: list[Candidate] = []
    groups = [(ep, fitting(layer, workload, rules, ep)) for ep in ep_widths(layer)]
    for ep, limit in groups:
        if limit:
            group = Colocated(layer, workload, ep)
            found += [
                *_chunked(group, limit, slo),
                *_between_steps(group, limit, slo),
                *_side_by_side(group, limit, slo),
            ]
    return found + list(_separate(layer, workload, slo, groups))


def _candidate(
    system: str, setting: str, group: Colocated, batch: float, step_s: float, rate: float, ttft_s: float
) -> Candidate:
    return Candidate(
        system=system,
        setting=f"EP{group.ep}{setting}",
        ep=group.ep,
        batch=int(batch),
        step_s=step_s,
        requests_per_s=rate,
        tokens_per_s=rate * group.workload.output_tokens,
        ttft_s=ttft_s,
    )


def _chunked(group: Colocated, limit: int, slo: Slo) -> Iterable[Candidate]:
    """A chunk of c tokens a step feeds batch B when c / B = prompt / output."""
    prompt, output = group.workload.prompt_tokens, group.workload.output_tokens
    for chunk in CHUNKS:
        batch = min(float(limit), chunk * output / prompt)
        if batch < 1:
            continue
        used = batch * prompt / output
        step = float(group.chunk_step_s(batch, used))
        ttft = math.ceil(prompt / used) * step
        if step <= (slo.tpot_s or math.inf) and ttft <= (slo.ttft_s or math.inf):
            yield _candidate(
                "chunked", f", chunks of {used:.0f}", group, batch, step, batch / step / output, ttft
            )


def _between_steps(group: Colocated, limit: int, slo: Slo) -> Iterable[Candidate]:
    """Whole prompts between decode steps: a request costs O T_d / B + T_p of the GPU's time."""
    output = group.workload.output_tokens
    batches = np.arange(1, limit + 1, dtype=float)
    steps, prompt_s = group.step_s(batches), float(group.prefill_s(1.0))
    rates = 1.0 / (output * steps / batches + prompt_s)
    tpot = batches / (rates * output)
    allowed = (tpot <= (slo.tpot_s or math.inf)) & (prompt_s + tpot <= (slo.ttft_s or math.inf))
    if allowed.any():
        best = int(np.argmax(np.where(allowed, rates, 0)))
        yield _candidate(
            "colocated",
            "",
            group,
            batches[best],
            float(tpot[best]),
            float(rates[best]),
            prompt_s + float(tpot[best]),
        )


def _side_by_side(group: Colocated, limit: int, slo: Slo) -> Iterable[Candidate]:
    """A fixed share of SMs for each phase; each phase's kernels take proportionally longer."""
    output = group.workload.output_tokens
    batches = np.arange(1, limit + 1, dtype=float)
    steps = group.step_s(batches)
    for share in PDMUX_SHARES:
        best = _largest_rate(batches, steps / share, slo)
        prompt_s = float(group.prefill_s(1.0, 1.0 - share))
        if best is not None and prompt_s <= (slo.ttft_s or math.inf):
            step = float(steps[best]) / share
            rate = min(batches[best] / step / output, 1.0 / prompt_s)
            yield _candidate(
                "pdmux", f", {share:.0%} of SMs for decode", group, batches[best], step, float(rate), prompt_s
            )


def _separate(
    layer: LayerModel, workload: Workload, slo: Slo, groups: list[tuple[int, int]]
) -> Iterable[Candidate]:
    """Prefill and decode instances of whole EP groups inside the domain, each with all the weights."""
    gpus, output = layer.hardware.gpus_per_domain, workload.output_tokens
    for ep_p, fits_p in groups:
        prompt_s = float(Colocated(layer, workload, ep_p).prefill_s(1.0)) if fits_p else math.inf
        if prompt_s > (slo.ttft_s or math.inf):
            continue
        for ep_d, limit in groups:
            if not limit or ep_p + ep_d > gpus:
                continue
            batches = np.arange(1, limit + 1, dtype=float)
            group = Colocated(layer, workload, ep_d)
            steps = group.step_s(batches)
            best = _largest_rate(batches, steps, slo)
            if best is None:
                continue
            per_decode_gpu = float(batches[best] / steps[best] / output)
            rate, prefill, dec = max(
                (
                    min(p * ep_p / prompt_s, d * ep_d * per_decode_gpu) / (p * ep_p + d * ep_d),
                    p * ep_p,
                    d * ep_d,
                )
                for p in range(1, gpus // ep_p + 1)
                for d in range(1, (gpus - p * ep_p) // ep_d + 1)
            )
            yield _candidate(
                "pdd",
                f", {prefill} prefill (EP{ep_p}) + {dec} decode GPUs",
                group,
                batches[best],
                float(steps[best]),
                rate,
                prompt_s,
            )


def best(candidates: list[Candidate]) -> Candidate:
    """Most requests per second and GPU; raises MissingData if no colocated system fits at all."""
    if not candidates:
        raise MissingData(
            "no colocated system fits this model and service level in one domain: nothing to compare with"
        )
    return max(candidates, key=lambda c: c.requests_per_s)
