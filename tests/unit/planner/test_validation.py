"""The validation table keeps what the planner promises, and the committed page is the table."""

from __future__ import annotations

import numpy as np
import pytest
from tests.bench.planner import validate

from afd_operator.planner import latency, plan, published, validation
from afd_operator.planner.verdict import Answer

ROWS = {row.figure: row for row in validation.rows()}
LABELS = [r.label for r in published.FASTAFD]


@pytest.mark.parametrize("figure", [f for f, row in ROWS.items() if "identity" in row.kind])
def test_identities_agree_within_the_printed_digits(figure: str) -> None:
    assert abs(ROWS[figure].deviation) <= 0.021


@pytest.mark.parametrize("label", LABELS)
def test_speedup_from_kernel_tables_within_ten_percent(label: str) -> None:
    assert abs(ROWS[f"{label}: speedup over EP4"].deviation) <= 0.10


@pytest.mark.parametrize("row", published.FASTAFD, ids=lambda r: r.label)
def test_chosen_m_is_within_one_step_of_the_grid(row: published.FastAfdRow) -> None:
    grid = published.FASTAFD_GRID
    assert abs(grid.index(validation.chosen_m(row)) - grid.index(row.attention_nodes)) <= 1


@pytest.mark.parametrize("label", LABELS)
def test_wide_ep_throughput_within_five_percent(label: str) -> None:
    assert abs(ROWS[f"{label}: vLLM EP16 tokens/s/GPU"].deviation) <= 0.05


@pytest.mark.parametrize("row", published.FASTAFD, ids=lambda r: r.label)
def test_sign_against_ep16(row: published.FastAfdRow) -> None:
    """Three rows gain; the one that loses 10 % must come out as "do not" or "within error"."""
    _, ratio, answer = validation.wide_ep(row)
    if row.afd_tokens > row.ep16_tokens:
        assert ratio > 1
    else:
        assert answer.answer in (Answer.COLOCATE, Answer.WITHIN_ERROR)


def test_the_calibration_is_what_the_published_shares_give() -> None:
    by_model = {
        r.model: [validation.small_kernels_us(q) for q in published.FASTAFD if q.model == r.model]
        for r in published.FASTAFD
    }
    qwen, minimax = by_model.values()
    assert latency.SMALL_KERNELS_US["qwen3_moe"] == pytest.approx(np.mean(qwen), abs=0.1)
    assert latency.SMALL_KERNELS_US["minimax_m2"] == pytest.approx(np.mean(minimax), abs=0.1)
    everything = [*qwen, *minimax]
    assert pytest.approx(np.mean(everything), abs=0.1) == latency.OTHER_FAMILIES_US
    assert pytest.approx(np.std(everything, ddof=1), abs=0.5) == latency.OTHER_FAMILIES_SD_US


def test_the_prediction_error_includes_what_the_published_speedups_show() -> None:
    deviations = [
        ROWS[f"{label}: {figure}"].deviation
        for label in LABELS
        for figure in ("speedup over EP4", "AFD over EP16")
    ]
    assert pytest.approx(np.sqrt(np.mean(np.square(deviations))), abs=0.002) == plan.DISCREPANCY_SIGMA


def test_the_committed_page_and_record_are_the_table() -> None:
    found = validate.table()
    assert validate.RECORD.read_text() == validate.record(found), "run python -m tests.bench.planner.validate"
    assert validate.PAGE.read_text() == validate.page(found), "run python -m tests.bench.planner.validate"
