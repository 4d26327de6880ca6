"""From printed lines to chapters, and from chapters to conversations."""

from __future__ import annotations

import random

import pytest
from tests.models.conversations import conversations, trim, utterance
from tests.models.corpus import Chapter, is_held_out, plain, split_chapters

PRINTED = """\
PRIDE AND PREJUDICE

By Jane Austen

Chapter 1

It is a truth universally
acknowledged.

"_You_ want to tell me," said he--"do."

* * * * *

CHAPTER II

Not all that Mrs. Bennet could ask.

THE END
A NOTE ON THE TEXT

An editor wrote this.
"""


def test_chapters_keep_prose_and_nothing_else() -> None:
    first, second = split_chapters(PRINTED.splitlines())
    assert first == Chapter(
        "Pride And Prejudice",
        1,
        ("It is a truth universally acknowledged.", '"You want to tell me," said he—"do."'),
    )
    assert second.paragraphs == ("Not all that Mrs. Bennet could ask.",)


def test_one_chapter_in_twenty_is_held_out() -> None:
    held_out = [n for n in range(1, 62) if is_held_out(Chapter("Emma", n, ()))]
    assert held_out == [10, 30, 50]


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("_very_ much", "very much"),
        ("came--a sorrow", "came—a sorrow"),
        (" wide   gaps ", "wide gaps"),
    ],
)
def test_typesetting_marks_go(printed: str, read: str) -> None:
    assert plain(printed) == read


@pytest.mark.parametrize(
    ("paragraph", "said"),
    [
        ('"Is he married or single?"', "Is he married or single?"),
        ('"Oh! single," said she, "to be sure!"', "Oh! single, to be sure!"),
        ("Mr. Bennet made no answer.", None),
        ('"A speech that the next paragraph goes on with.', None),
    ],
)
def test_only_what_is_said_is_an_answer(paragraph: str, said: str | None) -> None:
    assert utterance(paragraph) == said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One two. Three four. Five.", "One two. Three four."),
        ("One two three four five six. Seven.", "One two three four five six."),
        ("No end", "No end"),
    ],
)
def test_answers_are_whole_sentences(text: str, kept: str) -> None:
    assert trim(text, 4) == kept


def test_the_same_seed_gives_the_same_conversations() -> None:
    chapter = Chapter(
        "Emma", 1, ('"Is he single?"', '"Oh! single."', "Emma was pleased with the ball. " * 10)
    )
    first, second = (list(conversations([chapter], random.Random(7))) for _ in range(2))
    assert first == second
    assert ("Is he single?", "Oh! single.") in [turn for c in first for turn in c.turns]
