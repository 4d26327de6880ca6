"""Write the planner's built-in kernel profiles from the tables of the aiconfigurator-core wheel.

The wheel (PyPI, Apache-2.0, NVIDIA's own measurements of single kernels) holds hundreds of thousands
of rows for each system; the planner needs the rows of MoE serving only. This script selects them and
writes one CSV per system in the schema of `afd_operator.planner.profile`:

    component,dtype,shape,ep,x,s,latency_us

so that a table of NVIDIA's, a table from a user's own GPU and a published figure look alike. Run it
with a Python that has pandas and pyarrow and the unpacked wheel:

    python tests/bench/planner/extract_aiconfigurator.py aiconfigurator_core/systems/data OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

SYSTEMS = ("gb200", "gb300", "b200_sxm", "h200_sxm", "h100_sxm")
BACKEND = "trtllm/1.3.0rc20"
"""One backend for all, so that systems compare: its fp8-block MoE rows are DeepGEMM's on Blackwell."""

BATCHES = (1, 4, 16, 32, 64, 128, 256)
CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
PROMPTS = (256, 512, 1024, 2048, 4096, 8192, 16384)
TOKENS = (1, 8, 32, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384)
GEMM_ROWS = (1, 16, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192)
GEMM_SIDES = (1024, 2048, 3072, 4096, 6144, 7168, 8192, 16384)
GQA = ((64, 4, 128), (48, 8, 128), (32, 4, 128), (64, 8, 128), (32, 8, 128), (96, 8, 128), (64, 8, 64))
MOE_DTYPES = {"fp8_block": "fp8", "bfloat16": "bf16", "w4a8_mxfp4_mxfp8": "mxfp4", "nvfp4": "nvfp4"}
EP = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS = ["component", "dtype", "shape", "ep", "x", "s", "latency_us"]


def rows(
    frame: pd.DataFrame, component: str, *, dtype: object, shape: object, ep: object, x: str, s: object
) -> pd.DataFrame:
    out = pd.DataFrame({"x": frame[x]})
    out["component"], out["dtype"], out["shape"], out["ep"] = component, dtype, shape, ep
    out["s"] = s
    out["latency_us"] = frame["latency"] * 1000.0
    # The tables hold repeated measurements of one point: the planner wants one row a point.
    keys = COLUMNS[:-1]
    return out.groupby(keys, as_index=False)["latency_us"].mean()[COLUMNS]


def attention(root: Path) -> list[pd.DataFrame]:
    out = []
    for kind, name in (("attention_decode", "generation"), ("attention_prefill", "context")):
        d = pd.read_parquet(root / "attention" / BACKEND / f"{name}_attention_perf.parquet")
        d = d[(d.window_size == 0) & (d.attn_dtype == "bfloat16")]
        kv = d.num_key_value_heads.where(d.num_key_value_heads > 0, d.num_heads)
        d = d.assign(
            shape="q" + d.num_heads.astype(str) + "kv" + kv.astype(str) + "d" + d.head_dim.astype(str)
        )
        d = d[d["shape"].isin([f"q{q}kv{k}d{h}" for q, k, h in GQA])]
        d = d.assign(dtype=d.kv_cache_dtype.map({"bfloat16": "bf16", "fp8": "fp8"}))
        if kind == "attention_decode":
            d = d.assign(context=d.step + 1)
            d = d[d.batch_size.isin(BATCHES) & d.context.isin(CONTEXTS)]
            out.append(rows(d, kind, dtype=d["dtype"], shape=d["shape"], ep=1, x="batch_size", s=d.context))
        else:
            d = d[d.batch_size.isin((1, 2, 4, 8)) & d.isl.isin(PROMPTS)]
            out.append(rows(d, kind, dtype=d["dtype"], shape=d["shape"], ep=1, x="batch_size", s=d.isl))
    return out


def latent_attention(root: Path) -> list[pd.DataFrame]:
    out = []
    for kind, name in (("attention_decode", "generation_mla"), ("attention_prefill", "context_mla")):
        d = pd.read_parquet(root / "mla" / BACKEND / f"{name}_perf.parquet")
        d = d[d.num_heads.isin((64, 128)) & (d.tp_size == 1)]
        d = d.assign(
            dtype=d.kv_cache_dtype.map({"bfloat16": "bf16", "fp8": "fp8"}),
            shape="mla" + d.num_heads.astype(str),
        )
        if "generation" in name:
            d = d.assign(context=d.step + 1)
            d = d[d.batch_size.isin(BATCHES) & d.context.isin(CONTEXTS)]
            out.append(rows(d, kind, dtype=d["dtype"], shape=d["shape"], ep=1, x="batch_size", s=d.context))
        else:
            d = d[d.batch_size.isin((1, 2, 4, 8)) & d.isl.isin(PROMPTS)]
            out.append(rows(d, kind, dtype=d["dtype"], shape=d["shape"], ep=1, x="batch_size", s=d.isl))
    return out


def sparse_attention(root: Path) -> list[pd.DataFrame]:
    """DSA: the table times the whole attention module, projections and indexer included."""
    out = []
    for kind, name in (("attention_module_decode", "generation"), ("attention_module_prefill", "context")):
        path = root / "sparse_attention" / BACKEND / f"dsa_{name}_module_perf.parquet"
        if not path.exists():
            continue
        d = pd.read_parquet(path)
        d = d[(d.gemm_type == "fp8_block") & d.num_heads.isin((64, 128))]
        d = d[d.architecture.where(d.num_heads == 64, "GlmMoeDsaForCausalLM") == "GlmMoeDsaForCausalLM"]
        d = d.assign(
            dtype=d.kv_cache_dtype.map({"bfloat16": "bf16", "fp8": "fp8"}),
            shape="dsa" + d.num_heads.astype(str),
        )
        if name == "generation":
            d = d[d.batch_size.isin(BATCHES) & d.step.isin(CONTEXTS)]
            out.append(rows(d, kind, dtype=d["dtype"], shape=d["shape"], ep=1, x="batch_size", s=d.step))
        else:
            d = d[(d.step == 0) & d.batch_size.isin((1, 2, 4, 8)) & d.isl.isin(PROMPTS)]
            out.append(rows(d, kind, dtype=d["dtype"], shape=d["shape"], ep=1, x="batch_size", s=d.isl))
    return out


def gemm(root: Path) -> list[pd.DataFrame]:
    d = pd.read_parquet(root / "gemm" / BACKEND / "gemm_perf.parquet")
    d = d[d.m.isin(GEMM_ROWS) & d.n.isin(GEMM_SIDES) & d.k.isin(GEMM_SIDES)]
    d = d[d.gemm_dtype.isin(("fp8_block", "bfloat16"))]
    d = d.assign(
        dtype=d.gemm_dtype.map({"fp8_block": "fp8", "bfloat16": "bf16"}),
        shape=d.n.astype(str) + "x" + d.k.astype(str),
    )
    return [rows(d, "gemm", dtype=d["dtype"], shape=d["shape"], ep=1, x="m", s=1)]


def moe(root: Path) -> list[pd.DataFrame]:
    d = pd.read_parquet(root / "moe" / BACKEND / "moe_perf.parquet")
    d = d[
        d.moe_dtype.isin(MOE_DTYPES)
        & (d.moe_tp_size == 1)
        & d.moe_ep_size.isin(EP)
        & d.num_tokens.isin(TOKENS)
    ]
    d = d[(d.num_experts >= 32) & d.distribution.isin(("balanced", "power_law_1.2"))]
    d = d[~d.kernel_source.str.contains("min_latency|nongated")]
    shape = (
        d.hidden_size.astype(str)
        + "x"
        + d.inter_size.astype(str)
        + "e"
        + d.num_experts.astype(str)
        + "k"
        + d.topk.astype(str)
    )
    component = d.distribution.map({"balanced": "moe", "power_law_1.2": "moe_skewed"})
    return [
        rows(
            d,
            component,
            dtype=d.moe_dtype.map(MOE_DTYPES),
            shape=shape,
            ep=d.moe_ep_size,
            x="num_tokens",
            s=1,
        )
    ]


def exchange(root: Path) -> list[pd.DataFrame]:
    """All-to-all of one rank: tokens per rank against microseconds; shape is the hidden size."""
    out = []
    path = root / "comm" / "trtllm/1.3.0rc10/trtllm_alltoall_perf.parquet"
    if path.exists():
        d = pd.read_parquet(path)
        d = d[(d.kernel_source == "NVLinkTwoSided") & d.num_tokens.isin(TOKENS)]
        keys = ["num_tokens", "hidden_size", "moe_ep_size"]
        # Dispatch is a preparation (who sends how much) and a transfer: one cannot be had without the other.
        for ops, component, dtype, payload in (
            (("alltoall_prepare", "alltoall_dispatch"), "dispatch", "fp8", "fp8"),
            (("alltoall_combine",), "combine", "bf16", "bfloat16"),
        ):
            e = d[d.op_name.isin(ops) & (d.moe_dtype == payload)]
            e = (
                e.groupby([*keys, "op_name"], as_index=False)["latency"]
                .mean()
                .groupby(keys, as_index=False)["latency"]
                .sum()
            )
            out.append(
                rows(
                    e,
                    component,
                    dtype=dtype,
                    shape=e.hidden_size.astype(str),
                    ep=e.moe_ep_size,
                    x="num_tokens",
                    s=1,
                )
            )
    d = pd.read_parquet(root / "comm" / "sglang/0.5.12/wideep_deepep_ll_perf.parquet")
    d = d[(d.num_topk == 8) & d.num_experts.isin((128, 256))]
    gpus = 4 if root.name.startswith("gb") else 8
    for component, column, dtype in (
        ("dispatch_ll", "dispatch_avg_t_us", "fp8"),
        ("combine_ll", "combine_avg_t_us", "bf16"),
    ):
        e = d.assign(latency=d[column] / 1000.0)
        out.append(
            rows(e, component, dtype=dtype, shape=e.hidden_size.astype(str), ep=gpus, x="num_token", s=1)
        )
    d = pd.read_parquet(root / "comm" / "sglang/0.5.12/wideep_deepep_normal_perf.parquet")
    d = d[
        (d.num_topk == 8)
        & d.num_experts.isin((128, 256))
        & (d.dispatch_sms == 20)
        & (d.combine_sms == 20)
        & (d.num_token >= 64)
        & (d.num_token <= 16384)
    ]
    for component, column, dtype in (
        ("dispatch_ht", "dispatch_transmit_us", "fp8"),
        ("combine_ht", "combine_transmit_us", "bf16"),
    ):
        e = d.assign(latency=d[column] / 1000.0)
        out.append(
            rows(e, component, dtype=dtype, shape=e.hidden_size.astype(str), ep=gpus, x="num_token", s=1)
        )
    return out


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    for system in SYSTEMS:
        root = source / system
        parts = [
            *attention(root),
            *latent_attention(root),
            *sparse_attention(root),
            *gemm(root),
            *moe(root),
            *exchange(root),
        ]
        table = pd.concat(parts).sort_values(COLUMNS[:-1])
        table["latency_us"] = table["latency_us"].map(lambda us: f"{us:.5g}")
        table.to_csv(target / f"{system}.csv", index=False)
        print(system, len(table), table.groupby("component").size().to_dict())


if __name__ == "__main__":
    main()
