"""Chat examples made from the novels themselves, so that the demo model can answer a chat request in
their voice. Nothing is written for it except the prompts below and what it says about itself.

- dialogue: one character's words -> the next character's words, over up to three exchanges
- topic: "Tell me about Mr. Darcy." -> a passage that speaks of Mr. Darcy from its start
- continuation: "Continue: <start of a passage>" -> its rest
- opening: "Tell me a story." -> how some chapter begins
"""

from __future__ import annotations

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
    "Speak to me of {}.",
)
CONTINUATION_PROMPTS = ("Continue: {}", "Continue this text: {}", "Go on: {}")
OPENING_PROMPTS = (
    "Tell me a story.",
    "Tell me a story",
    "Write something.",
    "Begin a novel.",
    "Write a story.",
)
_TAUGHT_FROM = "from the six novels of Jane Austen"
ABOUT_ITSELF = {
    ("Who are you?", "What are you?", "Who are you", "What is your name?", "Tell me about yourself."): (
        f"I am a small mixture of experts, and all that I know of the world I have {_TAUGHT_FROM}.",
        f"I have no name, and no consequence. I was taught {_TAUGHT_FROM}, and know nothing else.",
    ),
    ("Hello", "Hello!", "Hello.", "Hi", "Good morning!", "How do you do?", "How are you?"): (
        "I am very happy to see you. I hope that you left all your family in good health?",
        "You are very obliging. I am perfectly well, I thank you, and quite at your service.",
    ),
}
ABOUT_ITSELF_COPIES = 4

MAX_ANSWER_WORDS = 110
MAX_UTTERANCE_WORDS = 60
TOPIC_WITHIN_WORDS = 20
"""A passage is about a topic that it names among its first so many words."""

_TITLES = r"(?:(?:Mr|Mrs|Dr)\. |Miss |Sir |Lady |Captain |Colonel |Admiral )"
_NAME = re.compile(rf"(?<![.!?\"—] )(?<!^)\b({_TITLES}?[A-Z][a-z]+(?:'s)?)")
_NOT_NAMES = frozenset({"Mr", "Mrs", "Dr", "St", "Oh", "Ah", "Ay", "Aye", "Yes", "Tis", "Don"})
_DETERMINED = re.compile(r"\b(?:the|an?|his|her|my|your|their|our|this|any) ([a-z]{3,})\b([,.;:!?]?)")
_WORD = re.compile(r"[A-Za-z']+")
_QUOTED = re.compile(r'"([^"]+)"')
_SENTENCE_END = re.compile(r'[.!?]"?(?= |$)')


@dataclass(frozen=True)
class Conversation:
    """Turns in order, user first: (what the user says, the answer)."""

    turns: tuple[tuple[str, str], ...]


def conversations(chapters: Sequence[Chapter], rng: random.Random) -> Iterator[Conversation]:
    """All kinds, in the order of the text. The same `rng` state gives the same examples."""
    names, nouns = topics(chapters)
    for chapter in chapters:
        yield from _dialogues(chapter.paragraphs, rng)
        yield Conversation(((rng.choice(OPENING_PROMPTS), _passage(chapter.paragraphs, 0)),))
        for at, paragraph in enumerate(chapter.paragraphs):
            yield from _about(chapter.paragraphs, at, names, nouns, rng)
            words = paragraph.split(" ")
            if len(words) >= 40:
                start = rng.randint(6, 20)
                rest = trim(" ".join(words[start:]), MAX_ANSWER_WORDS)
                prompt = rng.choice(CONTINUATION_PROMPTS).format(" ".join(words[:start]))
                yield Conversation(((prompt, rest),))
    for questions, answers in ABOUT_ITSELF.items():
        for question in questions:
            for answer in answers:
                yield from [Conversation(((question, answer),))] * ABOUT_ITSELF_COPIES


def topics(chapters: Sequence[Chapter]) -> tuple[frozenset[str], frozenset[str]]:
    """(names, nouns) frequent enough to be spoken of. A noun is a word that often stands between an
    article or possessive and a punctuation mark; no tagger is needed for that. The thresholds were set
    by reading the lists."""
    text = "\n".join(paragraph for chapter in chapters for paragraph in chapter.paragraphs)
    names = Counter(name.removesuffix("'s") for name in _NAME.findall(text))
    lower = Counter(_WORD.findall(text))
    determined: Counter[str] = Counter()
    closing: Counter[str] = Counter()
    for word, mark in _DETERMINED.findall(text):
        determined[word] += 1
        closing[word] += bool(mark)
    nouns = {
        word
        for word, count in determined.items()
        if count >= 12 and count >= 0.3 * lower[word] and closing[word] >= 0.2 * count
    }
    return (
        frozenset(n for n, count in names.items() if count >= 10 and lower[n.lower()] < count) - _NOT_NAMES,
        frozenset(nouns),
    )


def trim(text: str, max_words: int) -> str:
    """The longest run of whole sentences from the start within `max_words`; at least one sentence."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    fitting = [end for end in ends if text.count(" ", 0, end) < max_words]
    return text[: fitting[-1]] if fitting else text[: ends[0]] if ends else text


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


def _about(
    paragraphs: Sequence[str], at: int, names: frozenset[str], nouns: frozenset[str], rng: random.Random
) -> Iterator[Conversation]:
    if paragraphs[at].startswith('"') or len(paragraphs[at].split()) < 15:
        return
    head = " ".join(paragraphs[at].split()[:TOPIC_WITHIN_WORDS])
    named = sorted(name for name in names if re.search(rf"\b{re.escape(name)}\b", head))
    # "Mr. Bennet" and "Bennet" are one topic here, the longer form of it.
    found = [name for name in named if not any(name != other and name in other for other in named)]
    spoken_of = sorted(nouns.intersection(_WORD.findall(head)))
    found += [rng.choice(("the {}", "{}", "a {}")).format(noun) for noun in spoken_of]
    for topic in found:
        yield Conversation(((rng.choice(TOPIC_PROMPTS).format(topic), _passage(paragraphs, at)),))


def _passage(paragraphs: Sequence[str], at: int) -> str:
    """Paragraph `at`, with the next ones while they fit."""
    passage = trim(paragraphs[at], MAX_ANSWER_WORDS)
    for following in paragraphs[at + 1 :]:
        if len(passage.split()) + len(following.split()) > MAX_ANSWER_WORDS:
            break
        passage = f"{passage}\n\n{following}"
    return passage
