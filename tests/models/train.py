"""Trains the demo model and writes it as a Hugging Face folder: `python -m tests.models.train --out DIR`.

A Qwen3-MoE small enough to be committed (under 12 MB in bf16) that has read one author, so that its text
reads as English. transformers' own Qwen3MoeForCausalLM is trained; only two things are added while training:
    - experts run dense: every expert on every token as two large matrix products, the router's weights zero
      for those not chosen. The same sum as running only the chosen ones, several times faster at this size;
    - dropout after each attention and expert block, because the text is read about twenty times over.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tests.models.batches import IGNORE, batches, chat_examples, prose
from tests.models.conversations import conversations
from tests.models.corpus import PACKAGE, VERSION, Corpus, read_corpus
from tests.models.tokens import END, save_tokenizer, train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import GenerationConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

EVALUATE_EVERY_STEPS = 100
CHAT_VARIANTS = 2
"""Times the conversations are drawn, each time with other prompts for the same passages."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides the result. The seed fixes weights, order of text and dropout; bit for bit only on
    one kind of device with one version of torch."""

    seed: int = 1811
    steps: int = 2600
    rows: int = 16
    row_tokens: int = 1024
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    weight_decay: float = 0.1
    dropout: float = 0.2
    vocab_size: int = 3072
    hidden_size: int = 256
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    experts: int = 16
    experts_per_token: int = 4
    expert_width: int = 64

    def config(self, end_id: int) -> Qwen3MoeConfig:
        return Qwen3MoeConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            head_dim=self.hidden_size // self.heads,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            num_experts=self.experts,
            num_experts_per_tok=self.experts_per_token,
            moe_intermediate_size=self.expert_width,
            intermediate_size=self.expert_width * self.experts_per_token,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            router_aux_loss_coef=0.001,
            max_position_embeddings=self.row_tokens,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            rms_norm_eps=1e-6,
            hidden_act="silu",
            attention_bias=False,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end_id,
            pad_token_id=end_id,
        )


@dataclass(frozen=True)
class Point:
    """Of the loss curve, in nats per token: training is the mean since the point before, with dropout."""

    step: int
    training: float
    held_out: float


def dense_experts(experts: nn.Module, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """`hidden` [tokens, H], `chosen` and `weights` [tokens, k] -> [tokens, H]."""
    gate_up, down = experts.gate_up_proj, experts.down_proj  # [E, 2I, H], [E, H, I]
    share = hidden.new_zeros(len(hidden), len(gate_up)).scatter(1, chosen, weights.to(hidden.dtype))
    both = nn.functional.linear(hidden, gate_up.flatten(0, 1))
    gate, up = both.unflatten(1, (len(gate_up), -1)).chunk(2, dim=2)
    inner = experts.act_fn(gate) * up * share.unsqueeze(2)  # [tokens, E, I]
    return nn.functional.linear(inner.flatten(1), down.transpose(0, 1).flatten(1))


def add_dropout(model: Qwen3MoeForCausalLM, rate: float) -> None:
    """Drops elements of what each block adds to the residual stream, while `model.training`."""

    def attention(module: nn.Module, _: object, output: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (nn.functional.dropout(output[0], rate, module.training), *output[1:])

    def experts(module: nn.Module, _: object, output: Tensor) -> Tensor:
        return nn.functional.dropout(output, rate, module.training)

    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(attention)
        layer.mlp.register_forward_hook(experts)


@torch.no_grad()
def held_out_loss(model: Qwen3MoeForCausalLM, stream: Tensor, row_tokens: int) -> float:
    """Mean negative log likelihood in nats per token over windows of `row_tokens`, no window overlapping."""
    model.eval()
    rows = stream[: len(stream) // row_tokens * row_tokens].view(-1, row_tokens)
    losses = [model(input_ids=chunk, labels=chunk).loss.item() * len(chunk) for chunk in rows.split(8)]
    model.train()
    return sum(losses) / len(rows)


def optimizer_for(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Weight decay for matrices only: a norm's gain has no reason to shrink to zero."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    gains = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95))


def rate_at(step: int, recipe: Recipe) -> float:
    """Share of the learning rate: linear warm-up, then half a cosine down to 1 %."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    done = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


def train(
    recipe: Recipe, corpus: Corpus, tokenizer: Tokenizer, device: str
) -> tuple[Qwen3MoeForCausalLM, list[Point]]:
    """The trained model in float32 on `device`, and its loss curve."""
    torch.manual_seed(recipe.seed)
    ALL_EXPERTS_FUNCTIONS.register("dense", dense_experts)
    config = recipe.config(tokenizer.token_to_id(END))
    config._experts_implementation = "dense"
    model = Qwen3MoeForCausalLM(config).to(device).train()
    add_dropout(model, recipe.dropout)
    draw = random.Random(recipe.seed)
    chat = [c for _ in range(CHAT_VARIANTS) for c in conversations(corpus.training, draw)]
    data = batches(
        prose(corpus.training, tokenizer),
        chat_examples(chat, tokenizer),
        rows=recipe.rows,
        row_tokens=recipe.row_tokens,
        seed=recipe.seed,
    )
    held_out = prose(corpus.held_out, tokenizer).to(device)
    optimizer = optimizer_for(model, recipe)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, recipe))
    curve: list[Point] = []
    start_s, running = time.monotonic(), torch.zeros((), device=device)
    for step in range(1, recipe.steps + 1):
        ids, labels = (part.to(device, non_blocking=True) for part in next(data))
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            out = model(input_ids=ids, output_router_logits=True)
            logits = out.logits[:, :-1].float().flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=IGNORE)
        (loss + config.router_aux_loss_coef * out.aux_loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        running += loss.detach()
        if step % EVALUATE_EVERY_STEPS == 0 or step == recipe.steps:
            training = running.item() / (step - curve[-1].step if curve else step)
            point = Point(
                step, round(training, 4), round(held_out_loss(model, held_out, recipe.row_tokens), 4)
            )
            curve.append(point)
            running.zero_()
            elapsed_s = time.monotonic() - start_s
            print(f"{point} elapsed_s={elapsed_s:.0f}", file=sys.stderr, flush=True)
    return model, curve


def save(model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, recipe: Recipe, out: Path) -> None:
    """Weights in bf16, config, tokenizer, and sampling that keeps a small model from repeating itself."""
    model.config._experts_implementation = "eager"
    model.to(torch.bfloat16).eval()
    end = tokenizer.token_to_id(END)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.6, top_p=0.9, top_k=50, eos_token_id=end, pad_token_id=end
    )
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    published_form(out / "config.json")
    save_tokenizer(tokenizer, out, recipe.row_tokens)


def published_form(path: Path) -> None:
    """Rewrites config.json with the keys that Qwen's published checkpoints use, which transformers 4 and 5
    and other engines read; transformers 5 saves two of them under names of its own."""
    config = json.loads(path.read_text())
    config["num_experts"] = config.pop("num_local_experts", config.get("num_experts"))
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.train")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--deb", type=Path, help=f"{PACKAGE}_{VERSION}_all.deb (default: apt-get download)")
    best = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=best, choices=("cpu", "cuda"), help="default: %(default)s")
    for name, default in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args(argv))
    out, deb, device = (options.pop(name) for name in ("out", "deb", "device"))
    recipe = Recipe(**options)
    # Without these two, CUDA's backward kernels add in an order that changes from run to run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False

    corpus = read_corpus(deb)
    tokenizer = train_tokenizer((chapter.text for chapter in corpus.training), recipe.vocab_size)
    model, curve = train(recipe, corpus, tokenizer, device)
    out.mkdir(parents=True, exist_ok=True)
    save(model, tokenizer, recipe, out)
    stream = prose(corpus.held_out, tokenizer).to(device)
    characters = sum(len(chapter.text) for chapter in corpus.held_out)
    nats = held_out_loss(model, stream, recipe.row_tokens)
    record = {
        "recipe": asdict(recipe),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out": {
            "tokens": len(stream),
            "characters": characters,
            "nats_per_token": round(nats, 4),
            "perplexity": round(math.exp(nats), 2),
            "bits_per_character": round(nats * len(stream) / characters / math.log(2), 4),
        },
        "curve": [asdict(point) for point in curve],
    }
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["held_out"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
