"""Text to token ids, as a server of the same model would: its tokenizer, and its chat template for messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from kvbench.errors import RunFailed, UsageError

Render = Callable[[list[dict[str, Any]]], str]

TODAY = date(2026, 1, 1)
"""The day it is for templates that write the date into the prompt: the same prompt on every day."""


class PromptText:
    """Tokenises prompts and conversations. The tokenizer and the template are read when the first text asks for them."""

    def __init__(self, tokenizer: Path, needed_by: str) -> None:
        """``tokenizer``: the model's ``tokenizer.json``, other files of the model beside it. ``needed_by``: the option, for messages."""
        self._file, self._needed_by = tokenizer, needed_by

    def prompt(self, text: str) -> list[int]:
        """The ids of a plain prompt, with the special tokens that the tokenizer puts around one (a BOS for many models)."""
        return list(self._tokenizer.encode(text).ids)

    def plain(self, text: str) -> list[int]:
        """The ids of a text, no special tokens added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def conversation(self, messages: list[dict[str, Any]]) -> list[int]:
        """The ids of a conversation under the model's chat template, the assistant's turn begun; ``ValueError``: it is refused, and why."""
        return self.plain(self._render(messages))

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise RunFailed(f"{self._needed_by} needs the package tokenizers; pip install 'kvbench[engine]'") from None
        if not self._file.is_file():
            raise UsageError(
                f"{self._needed_by} needs the model's tokenizer, and {self._file} does not exist; name a --model folder that has one"
            )
        try:
            return Tokenizer.from_file(str(self._file))
        except Exception as error:  # tokenizers raises plain Exception
            raise UsageError(f"{self._file}: not a tokenizer ({error})") from None

    @cached_property
    def _render(self) -> Render:
        """The template as a function. It comes with the model, so it runs in jinja's sandbox, with the names transformers gives it."""
        try:
            from jinja2 import TemplateError
            from jinja2.ext import Extension, loopcontrols
            from jinja2.nodes import Node
            from jinja2.parser import Parser
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise RunFailed("messages need the package jinja2 for the chat template; pip install 'kvbench[engine]'") from None

        class Generation(Extension):
            """``{% generation %}``, which marks the assistant's words for training, writes what is in it."""

            tags = {"generation"}  # noqa: RUF012

            def parse(self, parser: Parser) -> list[Node]:
                next(parser.stream)
                return parser.parse_statements(("name:endgeneration",), drop_needle=True)

        source, special = _read_template(self._file.parent)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = TODAY.strftime
        try:
            template = environment.from_string(source)
        except TemplateError as error:
            raise UsageError(f"{self._file.parent}: the chat template is broken ({error})") from None

        def render(messages: list[dict[str, Any]]) -> str:
            try:
                return template.render(messages=messages, add_generation_prompt=True, **special)
            except (TemplateError, TypeError) as error:
                raise ValueError(f"the model's chat template refuses the messages ({error})") from None

        return render


def _refuse(message: str) -> None:
    """What a template calls for a conversation it cannot write down."""
    raise TypeError(message)


def _read_template(folder: Path) -> tuple[str, dict[str, str]]:
    """The chat template of a model folder (``chat_template.jinja``, else in ``tokenizer_config.json``) and its special tokens by name."""
    config_file, template_file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    try:
        config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
        template = template_file.read_text(encoding="utf-8") if template_file.is_file() else config.get("chat_template")
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{folder}: the chat template cannot be read ({error})") from None
    if isinstance(template, list):  # several by name; transformers takes the one named default
        template = next((item["template"] for item in template if item["name"] == "default"), None)
    if not isinstance(template, str):
        raise UsageError(f"{folder} has no chat template for messages; name a --model that has one, or give prompt or token_ids")
    tokens = {name: config.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return template, {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items() if token}
