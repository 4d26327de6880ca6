"""Yes, no, or not sure: and in one sentence each, why.

The answer compares the best layout found with the best colocated system found, by requests (or decoded
tokens) per second and paid GPU. Three outcomes, and they are never confused with a failure to plan:

    DISAGGREGATE   the lower bound of the speedup is above 1
    WITHIN_ERROR   the speedup is above 1, its lower bound is not: measure before buying
    COLOCATE       the speedup is below 1, or no layout fits; the reasons say what stands in the way
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    DISAGGREGATE = "disaggregate"
    WITHIN_ERROR = "within-error"
    COLOCATE = "colocate"


class Reason(StrEnum):
    """Machine-readable reasons; each comes with a sentence that has the numbers."""

    GAIN = "Gain"
    TAX_EXCEEDS_EXPANSION = "TaxExceedsExpansion"
    """r M/(M+N) < 1: what the freed memory gains, the expert GPUs cost."""
    FFN_EXPOSED = "FfnExposed"
    TRANSFER_BOUND = "TransferBound"
    BATCH_TOO_SMALL = "BatchTooSmall"
    WIDE_EP_BETTER = "WideEpBetter"
    BASELINE_BETTER = "BaselineBetter"
    GAIN_WITHIN_ERROR = "GainWithinError"
    NO_LAYOUT_FITS = "NoLayoutFits"
    SLO_UNREACHABLE = "SloUnreachable"
    SINGLE_NODE_DOMAIN = "SingleNodeDomain"


@dataclass(frozen=True)
class Finding:
    """One reason and its sentence."""

    reason: Reason
    text: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the reasons are drawn from, at the best layout and the best baseline."""

    speedup: float
    low: float
    expansion: float
    tax: float
    latency_ratio: float
    t_attention_us: float
    t_expert_us: float
    t_transfer_us: float
    wire_us: float
    microbatches: int
    batch: int
    margin: float
    baseline: str
    baseline_ep: int
    narrow_ep: int
    speedup_over_narrow: float
    decode_only: bool
    """Whether output is decoded tokens; in serving, expert GPUs earn by prefill too: the tax is not theirs alone."""

    @property
    def what(self) -> str:
        return "decoded tokens" if self.decode_only else "requests"


def judge(f: Facts) -> tuple[Answer, tuple[Finding, ...]]:
    """The answer for a layout that exists, and all reasons that apply, the decisive one first."""
    if f.low > 1.0:
        answer = Answer.DISAGGREGATE
        text = (
            f"{f.speedup:.2f}x the {f.what} per GPU of {f.baseline}, at least {f.low:.2f}x "
            "within the prediction error"
        )
        return answer, (Finding(Reason.GAIN, text), *_warnings(f))
    if f.speedup > 1.0:
        text = (
            f"the predicted gain over {f.baseline} is {f.speedup - 1:.1%} and the "
            f"prediction error reaches down to {f.low:.2f}x: "
            "measure one unit before buying"
        )
        return Answer.WITHIN_ERROR, (Finding(Reason.GAIN_WITHIN_ERROR, text), *_obstacles(f))
    text = f"{f.baseline} does {1 / f.speedup:.2f}x the {f.what} per GPU"
    return Answer.COLOCATE, (*_obstacles(f), Finding(Reason.BASELINE_BETTER, text))


def _obstacles(f: Facts) -> tuple[Finding, ...]:
    out = []
    if f.decode_only and f.expansion * f.tax < 1.0:
        text = (
            f"batch expansion {f.expansion:.2f} x FFN tax {f.tax:.3f} = "
            f"{f.expansion * f.tax:.2f} < 1: the expert GPUs cost more than the freed memory gains"
        )
        out.append(Finding(Reason.TAX_EXCEEDS_EXPANSION, text))
    if f.baseline_ep > f.narrow_ep and f.speedup_over_narrow > 1.0:
        text = (
            f"EP{f.baseline_ep} frees almost as much memory without expert-only GPUs: the layout gains "
            f"{f.speedup_over_narrow - 1:.0%} over EP{f.narrow_ep} but {f.speedup - 1:+.0%} over EP{f.baseline_ep}"
        )
        out.append(Finding(Reason.WIDE_EP_BETTER, text))
    return (*out, *_warnings(f))


def _warnings(f: Facts) -> tuple[Finding, ...]:
    out = []
    loop = f.t_attention_us + f.t_expert_us + 2 * f.t_transfer_us
    if f.wire_us >= f.t_expert_us:
        text = (
            f"the link needs {f.wire_us:.0f} us for a layer's results, longer than the "
            "experts compute: transfer-bound"
        )
        out.append(Finding(Reason.TRANSFER_BOUND, text))
    elif f.t_expert_us > (1.0 - f.margin) * f.t_attention_us:
        text = (
            f"the FFN is exposed: T_e {f.t_expert_us:.0f} us against T_a "
            f"{f.t_attention_us:.0f} us leaves less than {f.margin:.0%} slack"
        )
        out.append(Finding(Reason.FFN_EXPOSED, text))
    if f.microbatches > 1 and loop > f.microbatches * max(f.t_attention_us, f.t_expert_us) * 1.05:
        text = (
            f"{f.batch} requests a GPU in {f.microbatches} microbatches do not fill the loop "
            f"of {loop:.0f} us: the pipeline waits"
        )
        out.append(Finding(Reason.BATCH_TOO_SMALL, text))
    return tuple(out)
