"""Messages -> the prompt that the model was trained on, by the checkpoint's own chat template.

Rendered as `transformers` does it (`utils/chat_template_utils.py`): Jinja in an immutable sandbox,
block trimming, loop controls, `raise_exception`, `strftime_now`, `tojson` without ASCII escapes.
The template is the checkpoint's, so it may be anything: the sandbox keeps it from our objects, and a
size limit on the prompt keeps what it makes within bounds.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_FILE = "chat_template.jinja"
PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""For a checkpoint without a template: a dialogue that a base model can go on with."""


class TemplateRefusedError(ValueError):
    """The template does not take these messages; the message is the template's own."""


class Generation(Extension):
    """`{% generation %}` marks what the assistant says for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012  # the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


class ChatTemplate:
    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises jinja2.TemplateSyntaxError."""
        self._template = _environment().from_string(source)
        self._special_tokens = dict(special_tokens)

    def render(self, messages: list[dict[str, str]]) -> str:
        """The prompt, ready for the assistant's words. Raises TemplateRefusedError."""
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=True,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        # A template is a program: it may also fail as one (TypeError on a message it did not expect).
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise TemplateRefusedError(f"the model's chat template: {error}") from error


def load(folder: Path) -> ChatTemplate:
    """From chat_template.jinja, else tokenizer_config.json, else the plain one."""
    config_file, template_file = folder / "tokenizer_config.json", folder / TEMPLATE_FILE
    config = json.loads(config_file.read_text()) if config_file.exists() else {}
    source = template_file.read_text() if template_file.exists() else _of_config(config.get("chat_template"))
    return ChatTemplate(source or PLAIN, _special_tokens(config))


def _of_config(entry: Any) -> str | None:
    """One template, or several by name, of which `default` is meant."""
    if isinstance(entry, list):
        return next((named["template"] for named in entry if named.get("name") == "default"), None)
    return entry if isinstance(entry, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and its like, each a string or an object with `content`."""
    found = {}
    for name in ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"):
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found
