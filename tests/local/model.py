"""A small random Qwen3-MoE checkpoint with a tokenizer, and what `transformers` says with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.models import random_checkpoint
from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, pre_tokenizers, trainers

END = 0


def write_tokenizer(folder: Path) -> Encoder:
    """Byte-level, so every token sequence is some text and every text some tokens."""
    encoder = Encoder(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=264,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    encoder.train_from_iterator(["the the that then"], trainer)
    encoder.save(str(folder / "tokenizer.json"))
    return encoder


@dataclass(frozen=True, eq=False)
class Checkpoint:
    folder: Path
    encoder: Encoder
    model: Any

    @cache  # noqa: B019  # one checkpoint a test session
    def _greedy(self, prompt: tuple[int, ...], tokens: int) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            made = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=END,
            )
        return list(made[0, len(prompt) :].tolist())

    def greedy(self, prompt: list[int], tokens: int) -> list[int]:
        """What `transformers` answers, the end token or not."""
        return self._greedy(tuple(prompt), tokens)

    def text(self, tokens: list[int]) -> str:
        return str(self.encoder.decode(tokens, skip_special_tokens=True))


def checkpoint(folder: Path) -> Checkpoint:
    # The oracle runs beside the unit: threads that spin for one another would starve it.
    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    encoder = write_tokenizer(folder)
    model = random_checkpoint.write(
        folder, "plain", vocab_size=encoder.get_vocab_size(), eos_token_id=END, max_position_embeddings=512
    )
    return Checkpoint(folder, encoder, model)
