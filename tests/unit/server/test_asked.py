"""What a body asks for, when it says so and when it leaves it to the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from afd_runtime.protocol.plan import MAX_SEED, Sampling
from afd_runtime.server import asked, bodies, defaults
from afd_runtime.server.asked import Asked
from afd_runtime.server.defaults import Defaults, DefaultsError

CHECKPOINT = Defaults(temperature=0.6, top_p=0.9, top_k=50)


def chat(**fields: Any) -> Asked:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return asked.asked(bodies.chat(json.dumps(body).encode()), CHECKPOINT)


def completion(**fields: Any) -> Asked:
    body = {"model": "m", "prompt": "x", **fields}
    return asked.asked(bodies.completion(json.dumps(body).encode()), CHECKPOINT)


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({}, Sampling(temperature=0.6, top_p=0.9, top_k=50, seed=1)),
        ({"temperature": 0}, Sampling(temperature=0, top_p=0.9, top_k=50, seed=1)),
        ({"top_p": 1, "top_k": -1}, Sampling(temperature=0.6, seed=1)),
        ({"top_k": 0}, Sampling(temperature=0.6, top_p=0.9, seed=1)),
        ({"seed": -1}, Sampling(temperature=0.6, top_p=0.9, top_k=50, seed=MAX_SEED)),
    ],
)
def test_a_request_goes_before_the_checkpoint(fields: dict[str, Any], sampling: Sampling) -> None:
    assert chat(**{"seed": 1, **fields}).sampling == sampling


def test_without_a_seed_each_request_has_its_own() -> None:
    assert chat().sampling.seed != chat().sampling.seed


def test_answers_of_one_request_differ_and_repeat() -> None:
    one = chat(n=3, seed=MAX_SEED)
    assert [one.choice(number).seed for number in range(3)] == [MAX_SEED, 0, 1]


@pytest.mark.parametrize(
    ("made", "tokens"),
    [
        (completion(), asked.DEFAULT_COMPLETION_TOKENS),
        (completion(max_tokens=5), 5),
        (chat(), None),
        (chat(max_tokens=5), 5),
        (chat(max_tokens=5, max_completion_tokens=6), 6),
    ],
)
def test_how_long_an_answer_may_be(made: Asked, tokens: int | None) -> None:
    assert made.max_tokens == tokens


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (None, Defaults()),
        ("{}", Defaults()),
        ('{"temperature": 0.5, "top_k": null}', Defaults(temperature=0.5)),
    ],
)
def test_defaults_of_a_checkpoint(tmp_path: Path, text: str | None, made: Defaults) -> None:
    if text is not None:
        (tmp_path / defaults.FILE).write_text(text)
    assert defaults.load(tmp_path) == made


@pytest.mark.parametrize("text", ["{", "[]", '{"top_p": 0}', '{"temperature": "hot"}'])
def test_defaults_that_cannot_be_used_name_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / defaults.FILE).write_text(text)
    with pytest.raises(DefaultsError, match=defaults.FILE):
        defaults.load(tmp_path)
