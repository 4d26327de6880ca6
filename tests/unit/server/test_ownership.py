"""The gateway's record of a request: tokens once each, in order, over any number of attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afd_runtime.protocol.messages import Tokens
from afd_runtime.protocol.plan import Sampling
from afd_runtime.server.ownership import MissingTokensError, Owned


def owned() -> Owned:
    return Owned("r", [1, 2], Sampling(seed=3), 10)


def tokens(first: int, *new: int, attempt: int = 0, reason: str | None = None) -> Tokens:
    return Tokens(request_id="r", attempt=attempt, first=first, tokens=list(new), finish_reason=reason)


def test_each_submission_is_a_new_attempt_with_what_is_there() -> None:
    one = owned()
    assert one.submit().attempt == 0
    one.accept(tokens(0, 7, 8))
    again = one.submit()
    assert (again.attempt, again.committed) == (1, [7, 8])


def test_a_submission_goes_above_replays_that_the_coordinator_counted() -> None:
    one = owned()
    one.submit()
    one.accept(tokens(0, 7, attempt=4))
    assert one.submit().attempt == 5


def test_what_the_client_has_is_skipped() -> None:
    one = owned()
    one.submit()
    assert one.accept(tokens(0, 7, 8)) == [7, 8]
    assert one.accept(tokens(1, 8, 9)) == [9]
    assert one.accept(tokens(0, 7)) == []


def test_a_gap_is_an_error_and_changes_nothing() -> None:
    one = owned()
    one.submit()
    with pytest.raises(MissingTokensError, match="token 0 awaited, 1 came"):
        one.accept(tokens(1, 8))
    assert one.answer == []


def test_answers_to_an_earlier_attempt_are_not_listened_to() -> None:
    """Another unit may have answered it otherwise: its arithmetic differs in the last bits."""
    one = owned()
    one.submit()
    one.submit()
    assert one.accept(tokens(0, 7, attempt=0, reason="stop")) == []
    assert one.finish_reason is None


def test_after_the_end_nothing_comes() -> None:
    one = owned()
    one.submit()
    one.accept(tokens(0, 7, reason="stop"))
    assert one.accept(tokens(1, 8)) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=40))
def test_any_windows_on_the_answer_give_its_beginning(windows: list[tuple[int, int]]) -> None:
    answer = list(range(100, 115))
    one, told = owned(), []
    one.submit()
    for first, count in windows:
        try:
            told += one.accept(tokens(first, *answer[first : first + count]))
        except MissingTokensError:
            assert first > len(told)
    assert told == answer[: len(told)]
