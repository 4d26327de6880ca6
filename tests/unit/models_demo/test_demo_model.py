"""The committed demo model: it loads as any Qwen3-MoE does, has learned the language, and fits its budget."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from jinja2 import Environment
from tests.models.reference_text import DATA, words
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen3MoeForCausalLM

DEMO = Path(__file__).parents[2] / "models" / "demo"
RECORD = json.loads((DEMO / "training.json").read_text())
BUDGET_BYTES = 12_000_000
CONTEXT_TOKENS = 1024


@pytest.fixture(scope="module")
def model() -> Qwen3MoeForCausalLM:
    return Qwen3MoeForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(DEMO)


def generate(
    model: Qwen3MoeForCausalLM, tokenizer: PreTrainedTokenizerBase, ids: list[int], **options: object
) -> str:
    torch.manual_seed(1)
    output = model.generate(torch.tensor([ids]), max_new_tokens=60, **options)
    return str(tokenizer.decode(output[0, len(ids) :], skip_special_tokens=True))


def test_weights_and_tokenizer_fit_the_budget() -> None:
    assert (
        sum((DEMO / name).stat().st_size for name in ("model.safetensors", "tokenizer.json")) <= BUDGET_BYTES
    )


def test_config_reads_like_a_published_qwen3_moe() -> None:
    config = json.loads((DEMO / "config.json").read_text())
    assert config["architectures"] == ["Qwen3MoeForCausalLM"]
    assert config["num_experts"] % 4 == 0, "expert workers of a demo are 1, 2 or 4"
    assert config["num_attention_heads"] > config["num_key_value_heads"], (
        "grouped-query attention is shown too"
    )
    assert config["max_position_embeddings"] >= CONTEXT_TOKENS
    assert {"rope_theta", "norm_topk_prob", "moe_intermediate_size"} <= config.keys()


def test_text_it_has_never_seen_is_no_surprise(model: Qwen3MoeForCausalLM) -> None:
    """The bound is the recorded perplexity of all held-out chapters; two of them may be a little harder."""
    ids = Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode((DATA / "held_out.txt").read_text()).ids
    rows = torch.tensor(ids[: len(ids) // CONTEXT_TOKENS * CONTEXT_TOKENS]).view(-1, CONTEXT_TOKENS)
    with torch.no_grad():
        nats = [model(input_ids=row[None], labels=row[None]).loss.item() for row in rows]
    assert math.exp(sum(nats) / len(nats)) < 1.15 * RECORD["held_out"]["perplexity"]


@pytest.mark.parametrize(
    "prompt", ["It is a truth universally acknowledged, that", "The family of", "Emma was"]
)
def test_what_it_writes_is_english(
    model: Qwen3MoeForCausalLM, tokenizer: PreTrainedTokenizerBase, prompt: str
) -> None:
    known = set((DATA / "words.txt").read_text().split())
    # The first and last word may be pieces: of the prompt's last word, and where the text was cut.
    written = words(generate(model, tokenizer, tokenizer(prompt)["input_ids"]))[1:-1]
    assert len(written) > 15
    assert sum(word in known for word in written) >= 0.9 * len(written), " ".join(written)


@pytest.mark.parametrize("question", ["Tell me about Mr. Darcy.", "Do you like music?", "Who is Emma?"])
def test_it_answers_and_stops_within_its_context(
    model: Qwen3MoeForCausalLM, tokenizer: PreTrainedTokenizerBase, question: str
) -> None:
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
    )
    torch.manual_seed(1)
    output = model.generate(torch.tensor([ids]), max_new_tokens=CONTEXT_TOKENS - len(ids))
    answer = tokenizer.decode(output[0, len(ids) :], skip_special_tokens=True)
    assert output[0, -1] == model.config.eos_token_id
    assert len(words(str(answer))) >= 3
    assert not any(mark in str(answer) for mark in ("<|user|>", "<|assistant|>", "<|end|>"))


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Good morning! "},
    {"role": "assistant", "content": "Good morning."},
    {"role": "user", "content": "Who are you?"},
]


def test_chat_template_renders_without_transformers() -> None:
    """The gateway renders it with jinja2 alone. A system message is left out: the model knows none."""
    template = json.loads((DEMO / "tokenizer_config.json").read_text())["chat_template"]
    text = Environment().from_string(template).render(messages=CONVERSATION, add_generation_prompt=True)
    assert text == ("<|user|>Good morning!<|assistant|>Good morning.<|end|><|user|>Who are you?<|assistant|>")


def test_every_text_survives_the_tokenizer() -> None:
    """Byte-level: what the novels never say is still said back."""
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    for text in ("Netherfield Park is let at last", "£20,000—naïve café", "日本語 🙂", "  two  spaces\n\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
