"""Kernel timings, and how the planner reads them. This is the schema that `afd profile` fills in.

A profile is a CSV with one timing a row, and a source:

    component,dtype,shape,ep,x,s,latency_us

    component                shape            x                 s            latency of
    attention_decode         q64kv4d128       requests          context      one layer
    attention_prefill        q64kv4d128       prompts           prompt       one layer
    attention_module_*       dsa64            as above                       attention with its projections
    gemm                     NxK              rows              1            one matrix
    moe, moe_skewed          HxIeEkK          tokens of all ep  1            one layer on one of ep ranks
    dispatch, combine        H                tokens of a rank  1            one all-to-all over ep ranks
    dispatch_ll, combine_ll                                                  same, low-latency kernels
    dispatch_ht, combine_ht                                                  same, high-throughput kernels

Latent attention has shape `mla<heads>`, with an indexer `dsa<heads>`. `dtype` is the KV cache's for
attention, the weights' for GEMMs and experts, the payload's for all-to-alls. `moe` is timed under even
routing, `moe_skewed` under a power law of exponent 1.2.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np

from afd_operator.planner.errors import MissingData, PlannerError
from afd_operator.planner.fit import Array, Component, Fit, fit
from afd_operator.planner.moe import balanced_footprint

HEADER = ("component", "dtype", "shape", "ep", "x", "s", "latency_us")
COMPONENTS = frozenset(
    f"{name}{suffix}"
    for name, suffixes in {
        "attention": ("_decode", "_prefill", "_module_decode", "_module_prefill"),
        "gemm": ("",),
        "moe": ("", "_skewed"),
        "dispatch": ("", "_ll", "_ht"),
        "combine": ("", "_ll", "_ht"),
    }.items()
    for suffix in suffixes
)
MAX_ROWS = 10**6

_GQA = re.compile(r"q(\d+)kv(\d+)d(\d+)")
_MOE = re.compile(r"(\d+)x(\d+)e(\d+)k(\d+)")
_GEMM = re.compile(r"(\d+)x(\d+)")


class InvalidProfile(PlannerError):
    """A profile with an unknown component, a row that is no timing, or no rows."""


Key = tuple[str, str, str]
"""component, dtype, shape"""
Rows = dict[int, list[tuple[float, float, float]]]
"""ep -> (x, s, microseconds)"""


@dataclass(frozen=True)
class Profile:
    """Timings of one system. Components are fitted when first asked for."""

    name: str
    source: str
    rows: dict[Key, Rows]
    _cache: dict[tuple[object, ...], Component] = field(default_factory=dict, repr=False, compare=False)

    def _once(self, key: tuple[object, ...], make: object) -> Component:
        if key not in self._cache:
            self._cache[key] = make()  # type: ignore[operator]
        return self._cache[key]

    def has(self, component: str, dtype: str, shape: str) -> bool:
        return (component, dtype, shape) in self.rows

    def shapes(self, component: str, dtype: str) -> list[str]:
        return sorted(shape for c, d, shape in self.rows if (c, d) == (component, dtype))

    def attention(self, phase: str, dtype: str, shape: str) -> tuple[Component, float]:
        """(component, scale of x) for attention of `shape`: its own table, or one over all shapes.

        Attention is bound by KV bytes when decoding and by score arithmetic in prefill, so a shape that
        no table times is read off the pooled fit, in which x counts bytes per token or score width.
        """
        name = f"attention_{phase}"
        if self.has(name, dtype, shape):
            return self._once((name, dtype, shape), lambda: self._plain(name, dtype, shape)), 1.0
        match = _GQA.fullmatch(shape)
        if match is None:
            raise self._missing(name, dtype, shape)
        return self._once((name, dtype), lambda: self._pooled_attention(name, dtype)), _attention_width(
            phase, match
        )

    def module(self, phase: str, dtype: str, shape: str) -> Component:
        """Attention that is timed with its projections (sparse attention)."""
        name = f"attention_module_{phase}"
        if not self.has(name, dtype, shape):
            raise self._missing(name, dtype, shape)
        return self._once((name, dtype, shape), lambda: self._plain(name, dtype, shape))

    def gemm(self, dtype: str) -> Component:
        """Microseconds of a matrix product: x = N K in millions, s = rows."""
        return self._once(("gemm", dtype), lambda: self._gemm(dtype))

    def moe(self, dtype: str, shape: str, ep: int, *, skewed: bool) -> Component:
        """One rank's experts of one layer: x = tiles, s = rows per tile (moe.balanced_footprint)."""
        name = "moe_skewed" if skewed else "moe"
        if self.has(name, dtype, shape):
            return self._once((name, dtype, shape, ep), lambda: self._moe(name, dtype, shape, ep))
        raise self._missing(name, dtype, shape)

    def moe_any_shape(self, dtype: str, *, skewed: bool) -> Component:
        """For expert shapes that no table times: x = tiles x weights of an expert in millions."""
        name = "moe_skewed" if skewed else "moe"
        return self._once((name, dtype), lambda: self._pooled_moe(name, dtype))

    def exchange(self, component: str, hidden: int, ep: int) -> tuple[Component, float]:
        """(component, scale of tokens) of an all-to-all; a hidden size not timed scales the payload."""
        dtype = "fp8" if component.startswith("dispatch") else "bf16"
        timed = sorted(
            (abs(math.log(int(s) / hidden)), s)
            for s in self.shapes(component, dtype)
            if ep in self.rows[component, dtype, s]
        )
        if not timed:
            raise self._missing(component, dtype, f"hidden {hidden} over {ep} ranks")
        shape = timed[0][1]
        key = (component, dtype, shape, ep)
        return self._once(key, lambda: self._plain(component, dtype, shape, ep)), hidden / int(shape)

    def exchange_widths(self, component: str) -> set[int]:
        """EP widths for which `component` is timed."""
        return {ep for (c, _, _), table in self.rows.items() if c == component for ep in table}

    def _missing(self, component: str, dtype: str, what: str) -> MissingData:
        have = self.shapes(component, dtype)
        return MissingData(
            f"profile {self.name} has no {component} timings in {dtype} for {what}"
            f" ({'it times ' + ', '.join(have) if have else 'none in this dtype'}); measure them with `afd profile`"
        )

    def _plain(self, component: str, dtype: str, shape: str, ep: int | None = None) -> Component:
        x, s, t = self._arrays(component, dtype, shape, ep)
        return Component.from_rows(x, s, t, self.source)

    def _arrays(
        self, component: str, dtype: str, shape: str, ep: int | None = None
    ) -> tuple[Array, Array, Array]:
        table = self.rows[component, dtype, shape]
        rows = [r for e, rs in table.items() if ep in (None, e) for r in rs]
        x, s, t = (np.array(v, dtype=float) for v in zip(*rows, strict=True))
        return x, s, t

    def _pooled_attention(self, component: str, dtype: str) -> Component:
        parts = []
        phase = component.removeprefix("attention_")
        for shape in self.shapes(component, dtype):
            if (match := _GQA.fullmatch(shape)) is not None:
                x, s, t = self._arrays(component, dtype, shape)
                parts.append((x * _attention_width(phase, match), s, t))
        if not parts:
            raise self._missing(component, dtype, "any grouped-query shape")
        x, s, t = (np.concatenate(v) for v in zip(*parts, strict=True))
        return Component.from_rows(x, s, t, f"{self.source}; fitted over all attention shapes")

    def _gemm(self, dtype: str) -> Component:
        parts = []
        for shape in self.shapes("gemm", dtype):
            match = _GEMM.fullmatch(shape)
            if match is not None:
                rows, _, t = self._arrays("gemm", dtype, shape)
                weights = int(match[1]) * int(match[2]) / 1e6
                parts.append((np.full_like(rows, weights), rows, t))
        if not parts:
            raise self._missing("gemm", dtype, "any matrix")
        x, s, t = (np.concatenate(v) for v in zip(*parts, strict=True))
        return Component.from_rows(x, s, t, self.source)

    def _moe_rows(self, component: str, dtype: str, shape: str, ep: int | None) -> tuple[Array, Array, Array]:
        match = _MOE.fullmatch(shape)
        if match is None:
            raise InvalidProfile(f"profile {self.name}: {shape!r} is not an expert shape (HxIeEkK)")
        experts, top_k = int(match[3]), int(match[4])
        x: list[Array] = []
        s: list[Array] = []
        t: list[Array] = []
        for ranks, rows in self.rows[component, dtype, shape].items():
            if ep in (None, ranks) and ranks <= experts:
                tokens = np.array([r[0] for r in rows])
                tiles, per_tile = balanced_footprint(tokens, experts=experts, top_k=top_k, ranks=float(ranks))
                x.append(tiles)
                s.append(per_tile)
                t.append(np.array([r[2] for r in rows]))
        if not x:
            raise self._missing(component, dtype, f"{shape} over {ep} ranks")
        return np.concatenate(x), np.concatenate(s), np.concatenate(t)

    def _moe(self, component: str, dtype: str, shape: str, ep: int) -> Component:
        base: Fit = fit(*self._moe_rows(component, dtype, shape, None))
        wanted = ep if ep in self.rows[component, dtype, shape] else None
        return Component.from_rows(*self._moe_rows(component, dtype, shape, wanted), self.source, base)

    def _pooled_moe(self, component: str, dtype: str) -> Component:
        parts = []
        for shape in self.shapes(component, dtype):
            match = _MOE.fullmatch(shape)
            if match is not None:
                tiles, per_tile, t = self._moe_rows(component, dtype, shape, None)
                parts.append((tiles * 3 * int(match[1]) * int(match[2]) / 1e6, per_tile, t))
        if not parts:
            raise self._missing(component, dtype, "any expert shape")
        x, s, t = (np.concatenate(v) for v in zip(*parts, strict=True))
        return Component.from_rows(x, s, t, f"{self.source}; fitted over all expert shapes")


def _attention_width(phase: str, match: re.Match[str]) -> float:
    """Decode reads every KV head's key and value; prefill computes every query head's scores."""
    query, kv, dim = (int(v) for v in match.groups())
    return 2.0 * dim * (kv if phase == "decode" else query) / 1024


def read_profile(name: str, source: str, text: str) -> Profile:
    """A profile from CSV text; raises InvalidProfile with the line that is wrong."""
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != HEADER:
        raise InvalidProfile(f"profile {name}: the header is not {','.join(HEADER)}")
    rows: dict[Key, Rows] = defaultdict(lambda: defaultdict(list))
    for line, row in enumerate(reader, start=2):
        if line > MAX_ROWS:
            raise InvalidProfile(f"profile {name}: more than {MAX_ROWS} rows")
        try:
            component, dtype, shape, ep, x, s, latency = row
            values = float(x), float(s), float(latency)
            ranks = int(ep)
        except ValueError:
            raise InvalidProfile(f"profile {name}, line {line}: {','.join(row)!r} is not a timing") from None
        if component not in COMPONENTS:
            raise InvalidProfile(
                f"profile {name}, line {line}: component {component!r} is not one of {', '.join(sorted(COMPONENTS))}"
            )
        if ranks < 1 or not all(math.isfinite(v) and v > 0 for v in values):
            raise InvalidProfile(f"profile {name}, line {line}: sizes and times must be positive")
        rows[component, dtype, shape][ranks].append(values)
    if not rows:
        raise InvalidProfile(f"profile {name}: no rows")
    return Profile(name, source, {key: dict(table) for key, table in rows.items()})


@cache
def built_in(name: str) -> Profile:
    """The packaged profile `name` (hardware records name theirs); raises MissingData if there is none."""
    path = files("afd_operator.planner") / "data" / "profiles" / f"{name}.csv"
    if not path.is_file():
        raise MissingData(f"no kernel profile is packaged for {name!r}; measure one with `afd profile`")
    return read_profile(name, f"aiconfigurator-core 0.12.0, {name}", path.read_text(encoding="utf-8"))
