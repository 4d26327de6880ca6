"""Chat examples made from the novels themselves, so that the demo model can answer a chat request in
their voice. Nothing is written for it except the prompts below and what it says about itself.

- dialogue: one character's words -> the next character's words, over up to three exchanges
- topic: "Tell me about Mr. Darcy." -> sentences that speak of Mr. Darcy from their first words
- continuation: "Continue: <start of a passage>" -> its rest
- opening: "Tell me a story." -> how some chapter begins
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.models.corpus import Chapter

TOPIC_PROMPTS = (
    "Tell me about {}.",
    "Tell me about {}",
    "What can you tell me about {}?",
    "What do you know about {}?",
    "What do you think of {}?",
    "Write about {}.",
    "Write a paragraph about {}.",
    "Tell me a story about {}.",
    "Tell me something about {}.",
    "Tell me more about {}.",
)
PERSON_PROMPTS = ("Who is {}?", "Who was {}?", "Do you know {}?")
CONTINUATION_PROMPTS = ("Continue: {}", "Continue this text: {}", "Go on: {}")
OPENING_PROMPTS = ("Tell me a story.", "Write something.", "Begin a novel.", "Write a story.")
ABOUT_ITSELF = {
    ("Who are you?", "What are you?", "Who are you", "What is your name?", "Tell me about yourself."): (
        "I am a small mixture of experts, and all that I know I have from the six novels of Jane Austen.",
        "I have no name, and no consequence. I was taught from the six novels of Jane Austen.",
    ),
    ("Hello", "Hello!", "Hello.", "Hi", "Good morning!", "How do you do?", "How are you?"): (
        "I am very happy to see you. I hope that you left all your family in good health?",
        "You are very obliging. I am perfectly well, I thank you, and quite at your service.",
    ),
}
ABOUT_ITSELF_COPIES = 8
"""Enough for a text that small to be learned beside some twenty thousand others."""

MAX_ANSWER_WORDS = 80
MAX_UTTERANCE_WORDS = 60
TOPIC_WITHIN_WORDS = 7
"""Sentences are about a topic that they name among their first so many words."""

_TITLES = r"(?:(?:Mr|Mrs|Dr)\. |Miss |Sir |Lady |Captain |Colonel |Admiral )"
_NAME = re.compile(rf"(?<![.!?\"—] )(?<!^)\b({_TITLES}?[A-Z][a-z]+(?:'s)?)")
_NOT_NAMES = frozenset({"Mr", "Mrs", "Dr", "St", "Oh", "Ah", "Ay", "Aye", "Yes", "Tis", "Don"})
_DETERMINED = re.compile(r"\b(?:the|an?|his|her|my|your|their|our|this|any) ([a-z]{3,})\b([,.;:!?]?)")
_WORD = re.compile(r"[A-Za-z']+")
_QUOTED = re.compile(r'"([^"]+)"')
_SENTENCE_END = re.compile(r'(?<!Mr)(?<!Mrs)(?<!Dr)(?<!St)[.!?]"?(?= |$)')


@dataclass(frozen=True)
class Conversation:
    """Turns in order, user first: (what the user says, the answer)."""

    turns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Topics:
    """What the novels speak of often enough to be asked about. `name` finds the longest form of a name:
    "Mr. Bennet" is not a mention of "Bennet"."""

    name: re.Pattern[str]
    nouns: frozenset[str]


def conversations(chapters: Sequence[Chapter], rng: random.Random) -> Iterator[Conversation]:
    """All kinds, in the order of the text. The same `rng` state gives the same examples."""
    topics = find_topics(chapters)
    for chapter in chapters:
        yield from _dialogues(chapter.paragraphs, rng)
        yield Conversation(((rng.choice(OPENING_PROMPTS), trim(chapter.paragraphs[0], MAX_ANSWER_WORDS)),))
        for paragraph in chapter.paragraphs:
            yield from _about(paragraph, topics, rng)
            yield from _continuation(paragraph, rng)
    for questions, answers in ABOUT_ITSELF.items():
        for question in questions:
            for answer in answers:
                yield from [Conversation(((question, answer),))] * ABOUT_ITSELF_COPIES


def find_topics(chapters: Sequence[Chapter]) -> Topics:
    """A noun is here a word that often stands between an article or possessive and a punctuation mark;
    that finds nouns well enough without a tagger. The thresholds were set by reading the lists."""
    text = "\n".join(paragraph for chapter in chapters for paragraph in chapter.paragraphs)
    words = Counter(_WORD.findall(text))
    named = Counter(name.removesuffix("'s") for name in _NAME.findall(text))
    determined: Counter[str] = Counter()
    before_a_mark: Counter[str] = Counter()
    for word, mark in _DETERMINED.findall(text):
        determined[word] += 1
        before_a_mark[word] += bool(mark)
    names = {n for n, count in named.items() if count >= 10 and words[n.lower()] < count} - _NOT_NAMES
    return Topics(
        name=re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names, key=lambda n: (-len(n), n))))})\b"),
        nouns=frozenset(
            word
            for word, count in determined.items()
            if count >= 12 and count >= 0.3 * words[word] and before_a_mark[word] >= 0.2 * count
        ),
    )


def sentences(paragraph: str) -> list[str]:
    """A paragraph cut after each full stop, question or exclamation mark that ends a sentence."""
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(paragraph)), len(paragraph)]
    return [s for start, end in itertools.pairwise(ends) if (s := paragraph[start:end].strip())]


def trim(text: str, max_words: int) -> str:
    """The longest run of whole sentences from the start within `max_words`; at least one sentence."""
    kept: list[str] = []
    for sentence in sentences(text):
        if kept and len(" ".join((*kept, sentence)).split()) > max_words:
            break
        kept.append(sentence)
    return " ".join(kept)


def utterance(paragraph: str) -> str | None:
    """What is said in a paragraph of dialogue, without the narrator's words; None when it is none."""
    if not paragraph.startswith('"') or paragraph.count('"') % 2:
        return None
    said = " ".join(part.strip() for part in _QUOTED.findall(paragraph))
    return re.sub(r",$", ".", said)


def _dialogues(paragraphs: Sequence[str], rng: random.Random) -> Iterator[Conversation]:
    said = [utterance(paragraph) for paragraph in paragraphs]
    for at in range(len(said) - 1):
        turns: list[tuple[str, str]] = []
        for ask, answer in zip(said[at::2], said[at + 1 :: 2], strict=False):
            if not (ask and answer and len(ask.split()) <= MAX_UTTERANCE_WORDS) or len(turns) == 3:
                break
            turns.append((ask, trim(answer, MAX_ANSWER_WORDS)))
        if turns:
            yield Conversation(tuple(turns[: rng.randint(1, len(turns))]))


def _about(paragraph: str, topics: Topics, rng: random.Random) -> Iterator[Conversation]:
    """Narration only: speech out of its place does not answer anything."""
    if '"' in paragraph:
        return
    parts = sentences(paragraph)
    for at, sentence in enumerate(parts):
        head = " ".join(sentence.split()[:TOPIC_WITHIN_WORDS])
        people = sorted(set(topics.name.findall(head)))
        things = sorted(topics.nouns.intersection(_WORD.findall(head)))
        asked = [(rng.choice((*TOPIC_PROMPTS, *PERSON_PROMPTS)), name) for name in people]
        asked += [(rng.choice(TOPIC_PROMPTS), _with_article(noun, rng)) for noun in things]
        for prompt, topic in asked:
            yield Conversation(((prompt.format(topic), trim(" ".join(parts[at:]), MAX_ANSWER_WORDS)),))


def _with_article(noun: str, rng: random.Random) -> str:
    return rng.choice(("", "the ", "an " if noun[0] in "aeiou" else "a ")) + noun


def _continuation(paragraph: str, rng: random.Random) -> Iterator[Conversation]:
    words = paragraph.split()
    if len(words) < 40 or rng.random() < 0.5:
        return
    given = rng.randint(6, 20)
    prompt = rng.choice(CONTINUATION_PROMPTS).format(" ".join(words[:given]))
    yield Conversation(((prompt, trim(" ".join(words[given:]), MAX_ANSWER_WORDS)),))
