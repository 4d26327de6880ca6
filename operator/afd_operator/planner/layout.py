"""Every disaggregated layout of one domain, evaluated at once.

A layout is M attention and N expert nodes, P of the attention nodes for prefill only, m microbatches and
q SMs of an expert GPU for decode while prefill has work too. For each:

    fits?      dense weights + KV on attention, experts / 4N + worst-case slots on expert GPUs
    batch      the largest that fits and whose step keeps the TPOT target (binary search), or a
               fraction of it where that decodes more
    T_a, T_e   of one layer and microbatch at that batch, the slowest lane's context included
    goodput    min(B_p / T_p, B_d / (T_d O)) of the unit                        per paid GPU

Layouts are arrays, one element each: a search over 10^5 of them is a few hundred numpy operations.
Kernel times are tabulated once per search (`Tables`), so a layout costs look-ups, not fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from afd_operator.planner.barrier import stretch
from afd_operator.planner.baselines import MAX_BATCH
from afd_operator.planner.fit import Array
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.memory import MemoryRules, attention_kv_bytes, batch_that_fits, expert_free_bytes
from afd_operator.planner.step import layer_cycle, step_time
from afd_operator.planner.workload import Slo, Workload

Ints = NDArray[np.int64]

MAX_MICROBATCHES = 4
"""Lanes of the persistent expert kernel (FastAFD; a fact of the kernel, not of the API)."""
CLUSTER = 2
"""SMs come in CTA clusters of two: TMA multicast peers run the same tile."""
PREFILL_RESERVE = 2 * CLUSTER
"""SMs that decode never takes while prefill has work, so that prefill advances (Q_max)."""
MARGIN = 0.05
"""Share of T_a kept as FFN slack: an exposed FFN slows every request, slack costs little."""
TIE = 1e-3
"""Rates closer than this are the same rate."""
FRACTIONS = (1.0, 0.875, 0.75, 0.625, 0.5)
_GRID = 256


@dataclass(frozen=True)
class Layouts:
    """One layout per element. `budget` counts SMs; it is all of them where no prefill contends."""

    attention: Ints
    expert: Ints
    prefill: Ints
    microbatches: Ints
    budget: Ints

    def __len__(self) -> int:
        return len(self.attention)

    @property
    def decode(self) -> Ints:
        """Attention nodes that decode."""
        return self.attention - self.prefill

    def take(self, index: NDArray[np.bool_] | Ints) -> Layouts:
        return Layouts(*(getattr(self, f.name)[index] for f in fields(self)))


def enumerate_layouts(
    layer: LayerModel, *, spares: int = 0, with_prefill: bool, budget_step: int = 8
) -> Layouts:
    """All layouts of one domain whose expert GPUs divide the experts; `spares` nodes stay free."""
    hw, experts = layer.hardware, layer.model.experts
    nodes, per = hw.nodes_per_domain - spares, hw.gpus_per_node
    sms = int(hw.required("sms"))
    budgets = range(budget_step, sms - PREFILL_RESERVE + 1, budget_step) if with_prefill else [sms]
    out = [
        (m, n, p, k, q)
        for n in range(1, nodes)
        if experts % (n * per) == 0
        for m in range(1, nodes - n + 1)
        for p in (range(1, m) if with_prefill else (0,))
        for k in range(1, MAX_MICROBATCHES + 1)
        for q in budgets
    ]
    columns = np.array(out, dtype=np.int64).reshape(-1, 5)
    return Layouts(*columns.T.copy())


@dataclass(frozen=True)
class Evaluation:
    """Results, one element per layout; times in microseconds, rates per paid GPU."""

    batch: Ints
    t_attention: Array
    t_expert: Array
    t_transfer: float
    step_us: Array
    prefill_batch: Ints
    prefill_us: Array
    requests_per_s: Array
    tokens_per_s: Array
    feasible: NDArray[np.bool_]
    fits: NDArray[np.bool_]

    @property
    def slack(self) -> Array:
        """(T_a - T_e) / T_a; negative = exposed."""
        return 1.0 - self.t_expert / self.t_attention

    @property
    def exposed(self) -> NDArray[np.bool_]:
        return self.t_expert > self.t_attention


@dataclass(frozen=True)
class Tables:
    """Kernel times on grids, for one model, system and workload."""

    attention: Array
    """FMHA microseconds of one layer, index = requests of a microbatch x 4 (quarters)."""
    dense: Array
    head: Array
    log_tokens: Array
    expert: dict[int, Array]
    """Expert ranks -> T_e over `log_tokens`, all SMs."""

    @classmethod
    def of(
        cls, layer: LayerModel, workload: Workload, limit: int, ranks: list[int], most_tokens: float
    ) -> Tables:
        # A batch of b in m microbatches has b/m requests each; quarters cover m = 1, 2, 4 exactly, 3 nearly.
        requests = np.maximum(np.arange(4 * limit + 1) / 4.0, 0.25)
        log_tokens = np.linspace(0.0, math.log(max(most_tokens, 2.0)), _GRID)
        tokens = np.exp(log_tokens)
        return cls(
            attention=layer.attention_us(requests, workload.decode_context_tokens),
            dense=layer.dense_us(requests),
            head=layer.head_us(requests),
            log_tokens=log_tokens,
            expert={r: np.maximum.accumulate(layer.expert_time_us(tokens, r)) for r in ranks},
        )

    def expert_us(self, tokens: Array, ranks: Ints) -> Array:
        out = np.empty(len(tokens))
        where = np.log(np.maximum(tokens, 1.0))
        for r, times in self.expert.items():
            mine = ranks == r
            out[mine] = np.interp(where[mine], self.log_tokens, times)
        return out


@dataclass(frozen=True)
class Search:
    """Evaluates layouts of `layer` under `workload` and `slo`."""

    layer: LayerModel
    workload: Workload
    slo: Slo
    rules: MemoryRules

    def evaluate(self, layouts: Layouts) -> Evaluation:
        """Best feasible batch and resulting rates of every layout."""
        per = self.layer.hardware.gpus_per_node
        limit = self._memory_limit(layouts)
        tables = self._tables(layouts, int(limit.max(initial=1)))
        batch = self._largest_batch(layouts, tables, limit)
        batch = self._best_batch(layouts, tables, batch)
        t_a, t_e, step = self._step(layouts, tables, np.maximum(batch, 1))
        feasible = (batch >= layouts.microbatches) & (step <= self._tpot_us())
        decode_gpus = layouts.decode * per
        rate = np.where(feasible, batch * decode_gpus / (step * 1e-6) / self.workload.output_tokens, 0.0)
        prefill_batch = np.zeros(len(layouts), dtype=np.int64)
        prefill_us = np.zeros(len(layouts))
        if layouts.prefill.any():
            prefill_batch, prefill_us = self._prefill(layouts, t_a, t_e)
            able = prefill_us <= (self.slo.ttft_s or math.inf) * 1e6
            feasible = feasible & able
            rate = np.where(
                feasible, np.minimum(rate, prefill_batch * layouts.prefill * per / (prefill_us * 1e-6)), 0.0
            )
        paid = (layouts.attention + layouts.expert) * per
        return Evaluation(
            batch,
            t_a,
            t_e,
            self.layer.transfer_us(),
            step,
            prefill_batch,
            prefill_us,
            rate / paid,
            rate / paid * self.workload.output_tokens,
            feasible,
            limit > 0,
        )

    def _tpot_us(self) -> float:
        return (self.slo.tpot_s or math.inf) * 1e6

    def _memory_limit(self, layouts: Layouts) -> Ints:
        """Requests that fit on a decode GPU; 0 where weights or slots do not fit. By (M, N) pair."""
        per = self.layer.hardware.gpus_per_node
        pairs, which = _pairs(layouts.attention, layouts.expert)
        context = self.workload.decode_context_tokens
        limits = []
        for m, n in pairs:
            room = expert_free_bytes(self.layer.model, self.layer.hardware, m * per, n * per, self.rules)
            kv = attention_kv_bytes(self.layer.model, self.layer.hardware, n * per, self.rules)
            fits = batch_that_fits(self.layer.model, kv, context, self.rules) if room >= 0 and kv > 0 else 0
            limits.append(min(fits, MAX_BATCH))
        return np.array(limits, dtype=np.int64)[which]

    def _tables(self, layouts: Layouts, limit: int) -> Tables:
        per = self.layer.hardware.gpus_per_node
        ranks = sorted({int(n) * per for n in np.unique(layouts.expert)})
        # The grid of tokens is the same for every question, so that two searches differ by their inputs only.
        most = float(self.layer.hardware.gpus_per_domain * MAX_BATCH)
        return Tables.of(self.layer, self.workload, limit, ranks, most)

    def _step(self, layouts: Layouts, tables: Tables, batch: Ints) -> tuple[Array, Array, Array]:
        """(T_a, T_e, T_step) of every layout at `batch` requests per decode GPU."""
        per, work = self.layer.hardware.gpus_per_node, self.workload
        lanes = layouts.decode * per
        quarter = np.rint(4 * batch / layouts.microbatches).astype(np.int64)
        late = stretch(
            lanes.astype(float),
            batch / layouts.microbatches,
            mean=work.decode_context_tokens,
            sd=work.decode_context_sd,
        )
        t_a = tables.attention[quarter] * late + tables.dense[quarter]
        tokens = lanes * batch / layouts.microbatches
        t_e = tables.expert_us(tokens, layouts.expert * per) * (self._sms() / layouts.budget)
        head = tables.head[quarter] * layouts.microbatches
        layers = self.layer.model.moe_layers
        return (
            t_a,
            t_e,
            _by_microbatches(layouts.microbatches, t_a, t_e, self.layer.transfer_us(), layers) + head,
        )

    def _sms(self) -> float:
        return self.layer.hardware.required("sms")

    def _largest_batch(self, layouts: Layouts, tables: Tables, limit: Ints) -> Ints:
        """Binary search: the step never gets shorter with a larger batch, so the boundary is one point."""
        if math.isinf(self._tpot_us()):
            return limit
        low, high = np.zeros_like(limit), limit.copy()
        while (low < high).any():
            middle = (low + high + 1) // 2
            _, _, step = self._step(layouts, tables, np.maximum(middle, 1))
            keeps = step <= self._tpot_us()
            low, high = np.where(keeps, middle, low), np.where(keeps, high, middle - 1)
        return low

    def _best_batch(self, layouts: Layouts, tables: Tables, most: Ints) -> Ints:
        """The batch of most tokens per second among FRACTIONS of the largest feasible one.

        The largest is not always best: where it pushes experts over a tile boundary the step jumps.
        """
        best, rate = most, np.zeros(len(layouts))
        for fraction in FRACTIONS:
            tried = np.floor(most * fraction).astype(np.int64)
            _, _, step = self._step(layouts, tables, np.maximum(tried, 1))
            better = tried / step > rate * (1.0 + TIE)
            best, rate = np.where(better, tried, best), np.where(better, tried / step, rate)
        return best

    def _prefill(self, layouts: Layouts, t_a: Array, t_e: Array) -> tuple[Ints, Array]:
        """(prompts per prefill GPU, T_p): as many prompts as the TTFT target allows, at least one.

        Prefill runs in two halves, so that one half's experts work while the other attends. On the
        expert GPUs it has the SMs that decode does not use: all of them while decode is away.
        """
        layer, per = self.layer, self.layer.hardware.gpus_per_node
        cycle = layer_cycle(t_a, t_e, layer.transfer_us(), 1)
        busy = np.minimum(
            1.0, layouts.microbatches * t_e / np.maximum(cycle, layouts.microbatches * np.maximum(t_a, t_e))
        )
        share = 1.0 - busy * layouts.budget / self._sms()
        best_batch = np.zeros(len(layouts), dtype=np.int64)
        best_us = np.full(len(layouts), np.inf)
        for prompts in (1, 2, 4, 8):
            time_us = self._prefill_us(layouts, prompts, np.maximum(share, 1e-3), per)
            better = (time_us <= (self.slo.ttft_s or math.inf) * 1e6) & (
                prompts / time_us > best_batch / best_us
            )
            better |= best_batch == 0
            best_batch = np.where(better, prompts, best_batch)
            best_us = np.where(better, time_us, best_us)
        return best_batch, best_us

    def _prefill_us(self, layouts: Layouts, prompts: int, share: Array, per: int) -> Array:
        layer, work = self.layer, self.workload
        half = prompts * work.prompt_tokens / 2.0
        t_a = float(layer.attention_us(prompts / 2.0, work.prompt_tokens, "prefill") + layer.dense_us(half))
        pairs, which = _pairs(layouts.prefill, layouts.expert)
        t_e = np.array([float(layer.expert_time_us(p * per * half, n * per)) for p, n in pairs])[which]
        return np.asarray(
            step_time(t_a, t_e / share, layer.transfer_us(), microbatches=2, layers=layer.model.moe_layers)
        )


def _pairs(first: Ints, second: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """Distinct pairs of two arrays, and for each element the index of its pair."""
    base = int(second.max(initial=0)) + 1
    codes, which = np.unique(first * base + second, return_inverse=True)
    return [divmod(int(code), base) for code in codes], which.reshape(-1)


def _by_microbatches(microbatches: Ints, t_a: Array, t_e: Array, t_c: float, layers: int) -> Array:
    """`step_time` for arrays whose elements differ in m."""
    out = np.empty_like(t_a)
    for m in np.unique(microbatches).tolist():
        mine = microbatches == m
        out[mine] = step_time(t_a[mine], t_e[mine], t_c, microbatches=m, layers=layers)
    return out


def most_rate(layouts: Layouts, result: Evaluation) -> int | None:
    """Index of the layout with most requests per second and GPU; None if none is feasible.

    Where prefill is the bottleneck many layouts decode equally many: of those the shortest step wins.
    """
    if not result.feasible.any():
        return None
    good = result.requests_per_s >= (1.0 - TIE) * result.requests_per_s.max()
    return int(np.argmin(np.where(good, result.step_us, np.inf)))


def largest_hidden(layouts: Layouts, result: Evaluation, margin: float = MARGIN) -> int | None:
    """FastAFD's rule: among the layouts whose FFN is hidden, the best; None if every FFN is exposed.

    With one expert pool and full batches this is the largest M with T_e <= (1 - margin) T_a.
    """
    hidden = result.feasible & (result.t_expert <= (1.0 - margin) * result.t_attention)
    if not hidden.any():
        return None
    good = hidden & (result.requests_per_s >= (1.0 - TIE) * result.requests_per_s[hidden].max())
    return int(np.argmin(np.where(good, result.step_us, np.inf)))


def pareto(result: Evaluation) -> Ints:
    """Indices of the layouts that no other beats in both tokens/s/GPU and TPOT, fastest step first."""
    order = np.lexsort((-result.tokens_per_s, result.step_us))
    order = order[result.feasible[order]]
    rates = result.tokens_per_s[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(rates)[:-1]]) if len(order) else rates
    return order[rates > before]
