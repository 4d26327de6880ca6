"""What is served and how well: the model, its service level, the load that is expected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel
from afd_operator.api.rules import Rule
from afd_operator.api.scalars import Duration

TokenCount = Annotated[int, Field(ge=1, le=10_485_760)]
"""Up to 10 Mi tokens: the longest context that any published model names."""

_PVC = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/.*)?$"
_PARENT = r"/\.\.(/|$)"


@dataclass(frozen=True)
class PvcSource:
    """A folder of a PersistentVolumeClaim in the deployment's namespace."""

    claim: str
    path: str
    """Relative to the root of the volume, empty for the root itself."""


class KvCacheDtype(StrEnum):
    AUTO = "auto"
    """The element type of the checkpoint's attention weights."""
    BF16 = "bf16"
    FP8 = "fp8"


class Model(ApiModel):
    """Which checkpoint is served, where it lies, and how much context it gets."""

    rules = (
        Rule(
            cel=rf"!self.source.startsWith('pvc://') || self.source.matches(r'{_PVC}')",
            holds=lambda m: not m.source.startswith("pvc://") or bool(re.fullmatch(_PVC, m.source)),
            field="source",
            message="must be pvc://CLAIM/PATH, where CLAIM is the name of a PersistentVolumeClaim",
        ),
        Rule(
            cel=rf"!self.source.matches(r'{_PARENT}')",
            holds=lambda m: not re.search(_PARENT, m.source),
            field="source",
            message="must not step out of the volume with '..'",
        ),
    )

    id: Annotated[
        str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$")
    ]
    """Name under which clients ask for the model, usually the checkpoint's: Qwen/Qwen3-235B-A22B-FP8."""

    source: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[a-z][a-z0-9+.-]*://\S+$")]
    """Where the checkpoint's folder (config.json, *.safetensors, tokenizer.json) lies, as a URI. This version
    reads `pvc://CLAIM/PATH`: a folder of a PersistentVolumeClaim in the same namespace. Every worker mounts
    it read-only, so the claim must be readable from many nodes at once."""

    context_length: TokenCount = 8192
    """Most tokens of prompt and answer together. Sizes the KV cache; not more than the checkpoint can."""

    kv_cache_dtype: KvCacheDtype = KvCacheDtype.AUTO
    """Element type of the KV cache."""

    @property
    def pvc(self) -> PvcSource | None:
        """The claim and folder of a `pvc://` source, None for every other scheme."""
        if not self.source.startswith("pvc://"):
            return None
        claim, _, path = self.source.removeprefix("pvc://").partition("/")
        return PvcSource(claim, path.strip("/"))


class Slo(ApiModel):
    """The service level that requests are held to."""

    rules = (
        Rule(
            cel="has(self.ttft) || has(self.tpot)",
            holds=lambda s: s.ttft is not None or s.tpot is not None,
            field="ttft",
            message="give ttft, tpot or both: a service level without a time says nothing",
        ),
        Rule(
            cel="!has(self.ttft) || duration(self.ttft) > duration('0s')",
            holds=lambda s: s.ttft is None or s.ttft.total_seconds() > 0,
            field="ttft",
            message="must be longer than 0s",
        ),
        Rule(
            cel="!has(self.tpot) || duration(self.tpot) > duration('0s')",
            holds=lambda s: s.tpot is None or s.tpot.total_seconds() > 0,
            field="tpot",
            message="must be longer than 0s",
        ),
    )

    ttft: Duration | None = None
    """Time to first token: from the arrival of a request to its first token, like `2s`."""

    tpot: Duration | None = None
    """Time per output token after the first, like `50ms`."""

    percentile: Annotated[int, Field(ge=50, le=99)] = 90
    """Share of requests, in percent, that must keep these times."""


class Workload(ApiModel):
    """The load that `ratio.mode: Auto` and `smBudget.mode: Auto` plan for, per unit."""

    input_tokens: TokenCount
    """Mean length of a prompt."""

    output_tokens: TokenCount
    """Mean length of an answer."""

    requests_per_second: Annotated[float, Field(gt=0, le=1_000_000)]
    """Mean rate of requests that one unit is to serve."""
