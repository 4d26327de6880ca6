"""Tokens to text: never half a character, never a stop string, and nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.unit import byte_tokenizer

from afd_runtime.server.detokenise import UNFINISHED, Detokeniser
from afd_runtime.server.stop import StopFinder

TOKENIZER = byte_tokenizer()
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)


def encode(text: str) -> list[int]:
    return list(TOKENIZER._encoder.encode(text).ids)


def pieces(tokens: list[int], sizes: list[int]) -> list[str]:
    """What is given out when the tokens come in batches of these sizes, again and again."""
    detokeniser, told, at = Detokeniser(TOKENIZER.decode), [], 0
    while at < len(tokens):
        size = sizes[len(told) % len(sizes)]
        told.append(detokeniser.push(tokens[at : at + size]))
        at += size
    return [*told, detokeniser.finish()]


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@given(text=texts, sizes=sizes)
def test_pieces_are_whole_characters_and_make_up_the_text(text: str, sizes: list[int]) -> None:
    told = pieces(encode(text), sizes)
    assert "".join(told) == text
    assert UNFINISHED in text or not any(UNFINISHED in piece for piece in told)


@given(tokens=st.lists(st.integers(0, 263), max_size=60), sizes=sizes)
def test_any_tokens_at_all_read_as_the_whole_does(tokens: list[int], sizes: list[int]) -> None:
    """A model may say bytes that are no UTF-8; its stream must still equal its text."""
    assert "".join(pieces(tokens, sizes)) == TOKENIZER.decode(tokens)


def test_a_character_of_four_tokens_comes_at_once() -> None:
    tokens = encode("a🙂b")
    assert len(tokens) == 6
    assert [piece for piece in pieces(tokens, [1]) if piece] == ["a", "🙂", "b"]


def test_a_long_answer_is_not_decoded_again_and_again() -> None:
    longest = 0

    def decode(tokens: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return TOKENIZER.decode(tokens)

    detokeniser = Detokeniser(decode)
    for token in encode("wörter und 🙂 " * 200):
        detokeniser.push([token])
    assert longest <= 12


@pytest.mark.parametrize(
    ("why", "stops", "pushed", "told", "found"),
    [
        ("no stops", (), ["ab", "c"], "abc", False),
        ("whole in one piece", ("b",), ["abc"], "a", True),
        ("across pieces", ("\n\nQ:",), ["x\n", "\nQ", ": y"], "x", True),
        ("its beginning turns out to be none", ("\n\nQ:",), ["x\n", "\nA"], "x\n\nA", False),
        ("the earliest of several", ("d", "b"), ["abcd"], "a", True),
        ("one that repeats its own beginning", ("aab",), ["a", "a", "a", "b"], "a", True),
        ("nothing after it", ("b",), ["ab", "cd"], "a", True),
    ],
)
def test_stop_strings(why: str, stops: tuple[str, ...], pushed: list[str], told: str, found: bool) -> None:
    finder = StopFinder(stops)
    text = "".join(finder.push(piece) for piece in pushed) + finder.finish()
    assert (text, finder.found) == (told, found), why


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_however_text_is_cut_the_stop_is_the_same(text: str, stops: list[str], cuts: list[int]) -> None:
    finder, told, at, turn = StopFinder(tuple(stops)), "", 0, 0
    while at < len(text):
        told += finder.push(text[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
        turn += 1
        # What has been given out can never have to be taken back.
        assert text.startswith(told)
        assert not any(stop in told for stop in stops)
    told += finder.finish()
    places = [text.find(stop) for stop in stops if stop in text]
    assert finder.found == bool(places)
    if places:
        # The stop string that is complete first ends the text, at the latest where any begins.
        assert told == text[: len(told)]
        assert any(text[len(told) :].startswith(stop) for stop in stops)
    else:
        assert told == text
