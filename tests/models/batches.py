"""Training batches: half of the rows are windows of plain prose, half are packed conversations.

- a prose row: `...chapter text ...<|end|>next chapter ...`; every token is learned
- a chat row: `<|user|>..<|assistant|>..<|end|><|user|>..`; answers are learned, prompts only read
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tests.models.conversations import Conversation
from tests.models.corpus import Chapter
from tests.models.tokens import ASSISTANT, END, USER
from tokenizers import Tokenizer
from torch import Tensor

IGNORE = -100
"""The label that torch's cross entropy leaves out."""


@dataclass(frozen=True)
class Example:
    """Token ids and, per token, the label: itself, or IGNORE where nothing is to be learned."""

    ids: list[int]
    labels: list[int]


def prose(chapters: Sequence[Chapter], tokenizer: Tokenizer) -> Tensor:
    """All chapters as one stream of token ids, [tokens] int64, each chapter closed by the end mark."""
    end = tokenizer.token_to_id(END)
    encoded = tokenizer.encode_batch([chapter.text for chapter in chapters])
    return torch.tensor([token for chapter in encoded for token in (*chapter.ids, end)])


def chat_examples(conversations: Sequence[Conversation], tokenizer: Tokenizer) -> list[Example]:
    user, assistant, end = (tokenizer.token_to_id(mark) for mark in (USER, ASSISTANT, END))
    texts = [text for conversation in conversations for turn in conversation.turns for text in turn]
    encoded = iter(tokenizer.encode_batch(texts))
    examples = []
    for conversation in conversations:
        example = Example([], [])
        for _ in conversation.turns:
            asked = [user, *next(encoded).ids, assistant]
            answered = [*next(encoded).ids, end]
            example.ids.extend(asked + answered)
            example.labels.extend([IGNORE] * len(asked) + answered)
        examples.append(example)
    return examples


def prose_rows(stream: Tensor, row_tokens: int, rng: random.Random) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows at random places, for ever: (ids, labels), each [row_tokens]."""
    while True:
        at = rng.randrange(len(stream) - row_tokens)
        window = stream[at : at + row_tokens]
        yield window, window


def chat_rows(
    examples: Sequence[Example], row_tokens: int, rng: random.Random
) -> Iterator[tuple[Tensor, Tensor]]:
    """Conversations in a new order each time round, packed into rows, for ever: (ids, labels). A row
    starts with a conversation, as a request does; the one that crosses its end is cut there."""
    order = list(examples)
    ids: list[int] = []
    labels: list[int] = []
    while True:
        rng.shuffle(order)
        for example in order:
            ids += example.ids
            labels += example.labels
            if len(ids) >= row_tokens:
                yield torch.tensor(ids[:row_tokens]), torch.tensor(labels[:row_tokens])
                ids, labels = [], []


def batches(
    stream: Tensor, examples: Sequence[Example], *, rows: int, row_tokens: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(ids, labels), each [rows, row_tokens], the same for the same seed; half prose and half chat."""
    rng = random.Random(seed)
    text, chat = prose_rows(stream, row_tokens, rng), chat_rows(examples, row_tokens, rng)
    while True:
        batch = [next(text) for _ in range(rows // 2)] + [next(chat) for _ in range(rows - rows // 2)]
        yield torch.stack([ids for ids, _ in batch]), torch.stack([labels for _, labels in batch])
