"""The demo model's tokenizer: byte-level BPE over the novels, and the three marks of a conversation.

    <|user|>Tell me about Mr. Darcy.<|assistant|>He was ... .<|end|>

Plain prose needs no mark; `<|end|>` also ends a chapter, so a completion may stop by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}{{ '<|user|>' + message.content | trim }}"
    "{%- elif message.role == 'assistant' %}{{ '<|assistant|>' + message.content | trim + '<|end|>' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""A system message is left out: the model has never seen one."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A BPE of `vocab_size` entries, the 256 bytes and the three marks included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context_tokens: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json as `transformers` and the gateway read them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_tokens,
        "eos_token": END,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
