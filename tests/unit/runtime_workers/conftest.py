"""Checkpoints (written once a run) and transports that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.models import random_checkpoint
from tests.unit.runtime_workers.transports import TcpTransport
from tests.unit.runtime_workers.unit_driver import Connect
from transformers import Qwen3MoeForCausalLM

from afd_runtime.transport import inprocess


@dataclass(frozen=True)
class Oracle:
    """A checkpoint folder, and `transformers` on the same weights."""

    folder: Path
    model: Qwen3MoeForCausalLM

    @torch.no_grad()
    def logits(self, prompt: list[int]) -> torch.Tensor:
        """[tokens, vocab]"""
        logits: torch.Tensor = self.model(torch.tensor([prompt])).logits[0]
        return logits

    @torch.no_grad()
    def greedy(self, prompt: list[int], tokens: int) -> list[int]:
        """The answer, without stopping at end-of-text."""
        whole = self.model.generate(
            torch.tensor([prompt]),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            eos_token_id=-1,
        )
        answer: list[int] = whole[0, len(prompt) :].tolist()
        return answer


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    """By the name of a shape in `random_checkpoint.SHAPES`."""
    made: dict[str, Oracle] = {}

    def get(name: str) -> Oracle:
        if name not in made:
            folder = tmp_path_factory.mktemp("checkpoint")
            made[name] = Oracle(folder, random_checkpoint.write(folder, name))
        return made[name]

    return get


@pytest.fixture
def tcp() -> Iterator[TcpTransport]:
    transport = TcpTransport()
    yield transport
    transport.close()


@pytest.fixture(params=["inprocess", "tcp"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Each transport in turn."""
    if request.param == "inprocess":
        return inprocess.connect
    transport: TcpTransport = request.getfixturevalue("tcp")
    return transport.connect


def prompts(*lengths: int, vocab: int = 211, seed: int = 1) -> dict[str, list[int]]:
    """Random prompts of these lengths, by name."""
    source = torch.Generator().manual_seed(seed)
    return {
        f"request-{number}": torch.randint(vocab, (length,), generator=source).tolist()
        for number, length in enumerate(lengths)
    }
