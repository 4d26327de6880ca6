"""Chat templates: rendered as `transformers` renders them, and kept in their sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.unit import byte_tokenizer
from transformers import PreTrainedTokenizerFast

from afd_runtime.server import template, tokenizer
from afd_runtime.server.template import ChatTemplate, TemplateRefusedError
from afd_runtime.server.tokenizer import TokenizerError

MESSAGES = [
    {"role": "system", "content": "Be brief. <&> ü"},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]
QWEN = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message['content'] | trim }}<|im_end|>\n"
    "{% endfor %}\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}\n  {%- if loop.index > 3 %}{% break %}{% endif %}"
    "[{{ m | tojson }}]{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ eos_token }}"
)


@pytest.mark.parametrize("source", [QWEN, LLAMA, template.PLAIN], ids=["qwen", "llama", "plain"])
def test_as_transformers_does(source: str) -> None:
    specials: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer()._encoder, chat_template=source, **specials
    )
    expected = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert ChatTemplate(source, specials).render(MESSAGES) == expected


@pytest.mark.parametrize(
    ("why", "source"),
    [
        ("it refuses", "{{ raise_exception('roles must alternate') }}"),
        ("it reaches for what it must not", "{{ messages.__class__.__mro__[1].__subclasses__() }}"),
        ("it changes what is not its own", "{{ messages.append(1) }}"),
        ("it fails as a program", "{{ 1 / 0 }}"),
        ("it expects other messages", "{{ messages[0].content + 1 }}"),
    ],
)
def test_a_template_that_does_not_take_the_messages(why: str, source: str) -> None:
    with pytest.raises(TemplateRefusedError):
        ChatTemplate(source, {}).render(MESSAGES)


@pytest.mark.parametrize(
    ("why", "config", "file", "rendered"),
    [
        ("none at all", None, None, "user: x\nassistant:"),
        ("in the config", {"chat_template": "A{{ bos_token }}", "bos_token": "<s>"}, None, "A<s>"),
        (
            "a token as an object",
            {"chat_template": "{{ bos_token }}", "bos_token": {"content": "<b>"}},
            None,
            "<b>",
        ),
        (
            "several by name",
            {"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]},
            None,
            "D",
        ),
        ("a file goes before the config", {"chat_template": "A"}, "F", "F"),
    ],
)
def test_where_a_template_comes_from(
    tmp_path: Path, why: str, config: dict[str, Any] | None, file: str | None, rendered: str
) -> None:
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if file is not None:
        (tmp_path / "chat_template.jinja").write_text(file)
    assert template.load(tmp_path).render([{"role": "user", "content": "x"}]) == rendered, why


@pytest.mark.parametrize(
    ("why", "files", "says"),
    [
        ("no tokenizer", {}, "does not exist"),
        ("not a tokenizer", {"tokenizer.json": "{}"}, "tokenizer.json"),
        (
            "a template that is none",
            {"tokenizer.json": byte_tokenizer()._encoder.to_str(), "chat_template.jinja": "{% if %}"},
            "line 1",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_served_says_why(
    tmp_path: Path, why: str, files: dict[str, str], says: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TokenizerError, match=says):
        tokenizer.load(tmp_path)


async def test_a_long_prompt_is_the_same_off_the_loop() -> None:
    made = byte_tokenizer()
    text = "then the end. " * 1000
    assert made.decode(await made.prompt(text)) == text
