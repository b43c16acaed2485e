"""Command lines, options and environments as they may be shown and kept: secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

MASK = "***"

_WORD = r"(?:^|[_.-])(?:header|(?:api)?key|token|secret|password|passwd|passphrase|credentials?|auth(?:orization)?)"
_SECRET, _SECRET_AT_END = (f"(?i){_WORD}{end}" for end in ("(?:$|[_.-])", "$"))  # compiled by re when first used: help masks nothing
_CAMEL = r"(?<=[a-z0-9])(?=[A-Z])"
_LOGIN = r"(?<=://)[^/]+(?=@)"  # up to the last @: a password may hold one, or a space
_MASKED = rf'(?:^|=|: ){re.escape(MASK)}$|://{re.escape(MASK)}@|"{re.escape(MASK)}"'

_CARRIER = "--vllm-arg"
"""The option whose values, one after the other, are the words of another command line."""


def mask_command(command: Sequence[str]) -> list[str]:
    """The words of a command line; the value of an option whose name says that it is secret is masked, and so is a login in a URL.

    The values of ``--vllm-arg`` are a command line in turn: one of them may be secret because of the one before it.
    """
    own, carried = _Words(), _Words()
    masked: list[str] = []
    next_is_carried = False
    for word in command:
        option, equals, value = word.partition("=")
        if next_is_carried:
            masked.append(carried.mask(word))
        elif option == _CARRIER and equals:
            masked.append(f"{_CARRIER}={carried.mask(value)}")
        else:
            masked.append(own.mask(word))
        next_is_carried = not next_is_carried and word == _CARRIER
    return masked


def mask_value(name: str, value: str) -> str:
    """A value as it may be shown; it may be JSON, or a name and its value in turn."""
    if value and _is_secret(name):
        return MASK
    if (masked := _mask_json(value)) is not None:
        return masked
    inner, equals, rest = mask_login(value).partition("=")
    return f"{inner}={mask_value(inner, rest)}" if equals else inner


def mask_login(text: str) -> str:
    """A text with the logins of its URLs masked."""
    return re.sub(_LOGIN, MASK, text)


def is_masked(word: str) -> bool:
    """Whether a word is one that masking has taken something from: what it was must be given again."""
    return re.search(_MASKED, word) is not None


class _Words:
    """Masks the words of one command line, one after the other."""

    def __init__(self) -> None:
        self._hides_next = False

    def mask(self, word: str) -> str:
        hidden = self._hides_next
        name, equals, value = word.partition("=")
        option = name.lstrip("-")
        self._hides_next = not equals and word.startswith("-") and _is_secret(option)
        if hidden:
            return MASK
        if not word.startswith("-"):
            return mask_value("", word)
        return f"{name}={mask_value(option, value)}" if equals else mask_login(word)


def _is_secret(name: str) -> bool:
    """Whether a name says that its value is secret: ``api_key``, ``api-key``, ``lmcache.key``, ``apiKey``."""
    return re.search(_SECRET, _split(name)) is not None


def _split(name: str) -> str:
    """``apiKey`` as ``api_Key``."""
    return re.sub(_CAMEL, "_", name)


def _mask_json(text: str) -> str | None:
    """A JSON object or array with its secrets masked, as it was where there are none; ``None``: it is neither."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    masked = _mask_content(content)
    return text if masked == content else json.dumps(masked, separators=(",", ":"), ensure_ascii=False)


def _mask_content(content: Any) -> Any:
    """JSON as it may be shown."""
    if isinstance(content, dict):
        return {name: MASK if _is_secret_member(name, value) else _mask_content(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_mask_content(value) for value in content]
    return mask_value("", content) if isinstance(content, str) else content


def _is_secret_member(name: str, value: Any) -> bool:
    """A switch, or nothing, is no secret, whatever its name; nor are ``eos_token_id`` and ``num_key_value_heads``."""
    if not value or value is True:
        return False
    return _is_secret(name) if isinstance(value, str) else re.search(_SECRET_AT_END, _split(name)) is not None
