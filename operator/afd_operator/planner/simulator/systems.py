"""The five systems at every setting worth trying on a given number of GPUs.

Each system is searched over its own settings, so that none loses by a bad choice: chunk sizes, EP groups,
prefill:decode splits, SM shares, and for disaggregation the GPUs of each role. Settings whose weights do
not leave room for KV are skipped; a system without any setting left "does not fit", which is a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from afd_operator.planner.errors import MissingData
from afd_operator.planner.latency import LayerModel
from afd_operator.planner.memory import MemoryRules, attention_kv_bytes, colocated_kv_bytes, expert_free_bytes
from afd_operator.planner.simulator.serving import System
from afd_operator.planner.simulator.timing import ColocatedTiming, Shape, UnitTiming

CHUNKS = (256, 512, 1024, 2048)
SHARES = (0.25, 0.5, 0.75)
KINDS = ("chunked", "colocated", "pdd", "pdmux", "afd")


def settings(kind: str, layer: LayerModel, gpus: int, rules: MemoryRules, context: float) -> list[System]:
    """Every setting of `kind` on `gpus` GPUs that holds the weights; may be empty."""
    builders = {"chunked": _chunked, "colocated": _colocated, "pdd": _pdd, "pdmux": _pdmux, "afd": _afd}
    return list(_kept(builders[kind](layer, gpus, rules, context)))


def _kept(candidates: Iterable[System | None]) -> Iterator[System]:
    return (c for c in candidates if c is not None)


def _system(**fields: object) -> System | None:
    try:
        return System(**fields)  # type: ignore[arg-type]
    except MissingData:
        return None


def _widths(layer: LayerModel, gpus: int) -> list[int]:
    """EP groups that tile `gpus` and divide the experts."""
    return [w for w in range(1, gpus + 1) if gpus % w == 0 and layer.model.experts % w == 0]


def _room(layer: LayerModel, bytes_per_gpu: float, gpus: int, rules: MemoryRules, context: float) -> float:
    """KV tokens of `gpus` GPUs; windows are counted at the mean context."""
    per_token = layer.model.kv_bytes(context, rules.kv_element_bytes) / context
    return bytes_per_gpu / per_token * gpus


def _group(layer: LayerModel, gpus: int, ep: int, rules: MemoryRules, context: float) -> dict[str, object]:
    room = _room(layer, colocated_kv_bytes(layer.model, layer.hardware, ep, rules), gpus, rules, context)
    return {"gpus": gpus, "prefill_gpus": gpus, "decode_gpus": gpus, "kv_tokens": room}


def _chunked(layer: LayerModel, gpus: int, rules: MemoryRules, context: float) -> Iterator[System | None]:
    for ep in _widths(layer, gpus):
        timing = ColocatedTiming(layer, ep)
        for chunk in CHUNKS:
            group = _group(layer, gpus, ep, rules, context)
            yield _system(
                kind="chunked",
                prefill=timing,
                decode=timing,
                chunk=chunk,
                setting=f"EP{ep}, chunks of {chunk}",
                **group,
            )


def _colocated(layer: LayerModel, gpus: int, rules: MemoryRules, context: float) -> Iterator[System | None]:
    for ep in _widths(layer, gpus):
        timing = ColocatedTiming(layer, ep)
        yield _system(
            kind="colocated",
            prefill=timing,
            decode=timing,
            setting=f"EP{ep}",
            **_group(layer, gpus, ep, rules, context),
        )


def _pdd(layer: LayerModel, gpus: int, rules: MemoryRules, context: float) -> Iterator[System | None]:
    """One instance of each phase, each with all the weights."""
    for prefill in range(1, gpus):
        decode = gpus - prefill
        if layer.model.experts % prefill or layer.model.experts % decode:
            continue
        if colocated_kv_bytes(layer.model, layer.hardware, prefill, rules) <= 0:
            continue
        group = _group(layer, decode, decode, rules, context) | {"gpus": gpus, "prefill_gpus": prefill}
        setting = f"{prefill} prefill + {decode} decode GPUs"
        yield _system(
            kind="pdd",
            prefill=ColocatedTiming(layer, prefill),
            decode=ColocatedTiming(layer, decode),
            setting=setting,
            **group,
        )


def _pdmux(layer: LayerModel, gpus: int, rules: MemoryRules, context: float) -> Iterator[System | None]:
    for ep in _widths(layer, gpus):
        for share in SHARES:
            # ExpertPlex's PDMux baseline supports tensor-parallel attention only.
            timing = ColocatedTiming(layer, ep, share, tensor_parallel=True)
            setting = f"EP{ep}, {share:.0%} of SMs for decode"
            yield _system(
                kind="pdmux",
                prefill=timing,
                decode=timing,
                shared=True,
                setting=setting,
                **_group(layer, gpus, ep, rules, context),
            )


def _afd(layer: LayerModel, gpus: int, rules: MemoryRules, context: float) -> Iterator[System | None]:
    for expert in range(1, gpus - 1):
        if layer.model.experts % expert:
            continue
        for prefill in range(1, gpus - expert):
            decode = gpus - expert - prefill
            if expert_free_bytes(layer.model, layer.hardware, prefill + decode, expert, rules) < 0:
                continue
            room = _room(
                layer, attention_kv_bytes(layer.model, layer.hardware, expert, rules), decode, rules, context
            )
            for share in SHARES:
                timing = UnitTiming(layer, Shape(prefill, decode, expert, decode_share=share))
                yield _system(
                    kind="afd",
                    gpus=gpus,
                    prefill=timing,
                    decode=timing,
                    prefill_gpus=prefill,
                    decode_gpus=decode,
                    kv_tokens=room,
                    shared=True,
                    setting=(
                        f"{prefill} prefill + {decode} decode + {expert} expert GPUs, "
                        f"{share:.0%} of SMs for decode"
                    ),
                )
