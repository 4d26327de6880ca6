"""What the next step runs."""

from __future__ import annotations

from tests.unit.coordinator.test_admission import request
from tests.unit.coordinator.world import capacity

from afd_runtime.coordinator import scheduler
from afd_runtime.coordinator.lanes import Lane
from afd_runtime.coordinator.requests import Request
from afd_runtime.coordinator.scheduler import Draft
from afd_runtime.protocol.plan import Phase


def lane(*requests: Request, rows: int = 8, index: int = 0) -> Lane:
    made = Lane(index, index, capacity(pages=100, slots=50, rows=rows))
    for one in requests:
        made.reserve(one)
    return made


def decoding(name: str, last_step: int = 0) -> Request:
    """A request whose prompt of two tokens is computed."""
    made = request(2, 20, name)
    made.computed = made.issued = 2
    made.last_step = last_step
    return made


def draft(
    *lanes: Lane, last: Phase = Phase.DECODE, microbatches: int = 2, steps_out: int = 0
) -> Draft | None:
    return scheduler.draft(lanes, last=last, microbatches=microbatches, steps_out=steps_out)


def counts(made: Draft | None, index: int = 0) -> list[list[tuple[str, int]]]:
    assert made is not None
    return [[(one.id, work.count) for one, work in batch] for batch in made.lanes[index]]


def test_nothing_to_do_is_no_step() -> None:
    assert draft(lane()) is None


def test_phases_alternate_while_both_have_work() -> None:
    both = lane(request(4, 4, "new"), decoding("old"))
    after_decode, after_prefill = draft(both, last=Phase.DECODE), draft(both, last=Phase.PREFILL)
    assert after_decode is not None
    assert after_prefill is not None
    assert (after_decode.phase, after_prefill.phase) == (Phase.PREFILL, Phase.DECODE)
    # With one kind of work only, it goes on with that.
    only = draft(lane(decoding("old")), last=Phase.DECODE)
    assert only is not None
    assert only.phase is Phase.DECODE


def test_a_long_prompt_comes_in_pieces_and_only_the_last_is_sampled() -> None:
    long = request(20, 4, "long")
    one = lane(long, rows=8)
    pieces = []
    for step in range(1, 5):
        made = draft(one)
        if made is None or made.phase is Phase.DECODE:
            break
        ((_, work),) = made.lanes[0][0]
        pieces.append((work.start, work.count, work.sample, work.sampling is not None, work.reserve))
        long.took(work, step)
    # Sampling and the reservation travel with the first piece alone.
    assert pieces == [(0, 8, False, True, 24), (8, 8, False, False, 0), (16, 4, True, False, 0)]


def test_prompts_fill_the_emptiest_microbatch_in_order_of_arrival() -> None:
    made = draft(lane(request(5, 1, "a"), request(3, 1, "b"), request(4, 1, "c"), rows=8))
    assert counts(made) == [[("a", 5)], [("b", 3), ("c", 4)]]


def test_decode_spreads_evenly_and_needs_no_more_microbatches_than_requests() -> None:
    assert counts(draft(lane(decoding("a")))) == [[("a", 1)]]
    assert counts(draft(lane(*map(decoding, "abc")))) == [[("a", 1), ("c", 1)], [("b", 1)]]


def test_when_not_all_fit_those_that_waited_longest_go_first() -> None:
    made = draft(lane(decoding("a", 3), decoding("b", 1), decoding("c", 2), rows=1))
    assert counts(made) == [[("b", 1)], [("c", 1)]]


def test_all_lanes_have_as_many_microbatches_an_idle_one_empty_ones() -> None:
    made = draft(lane(*map(decoding, "abc"), index=0), lane(index=1))
    assert counts(made, 1) == [[], []]
    assert made is not None
    assert (made.microbatches, made.bucket) == (2, 2)


def test_a_request_with_enough_steps_out_waits_for_results() -> None:
    one = decoding("a")
    one.issued = one.reserve - 1
    assert draft(lane(one), steps_out=1) is None


def test_a_step_ahead_of_the_results_runs_the_next_position() -> None:
    one = decoding("a")
    made = draft(lane(one))
    assert made is not None
    ((_, work),) = made.lanes[0][0]
    one.took(work, 1)
    ahead = draft(lane(one), steps_out=1)
    assert ahead is not None
    ((_, next_work),) = ahead.lanes[0][0]
    assert (work.start, next_work.start) == (2, 3)


def test_pages_are_given_back_at_rest_by_a_step_without_work() -> None:
    done = decoding("done")
    one = lane(done)
    one.release(done)
    assert draft(one, steps_out=1) is None, "the steps that are out may still bring work"
    flush = draft(one)
    assert flush is not None
    assert (flush.lanes[0], flush.bucket) == ([[]], 1)


def test_the_budget_bounds_a_prefill_step() -> None:
    prompts = [request(3000, 1, str(number)) for number in range(3)]
    big = Lane(0, 0, capacity(pages=10_000, slots=50, rows=4096))
    for one in prompts:
        big.reserve(one)
    made = draft(big, microbatches=2)
    assert sum(count for batch in counts(made) for _, count in batch) == scheduler.PREFILL_TOKENS
