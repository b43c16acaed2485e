"""Command lines, options and environments as they may be shown and kept: secrets masked."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

_SECRET = re.compile(r"(?:^|[_-])(?:header|key|token|secret|password|passwd|credentials?|auth)(?:$|[_-])", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/]+(?=@)")  # up to the last @: a password may hold one, or a space
_MASKED = re.compile(rf"(?:^|=|: ){re.escape(MASK)}$|://{re.escape(MASK)}@")

_CARRIER = "--vllm-arg"
"""The option whose values, one after the other, are the words of another command line."""


def mask_command(command: Sequence[str]) -> list[str]:
    """The words of a command line; the value of an option whose name says that it is secret is masked, and so is a login in a URL.

    The values of ``--vllm-arg`` are a command line in turn: one of them may be secret because of the one before it.
    """
    own, carried = _Line(), _Line()
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
    """A value as it may be shown; it may be a name and its value in turn."""
    if _SECRET.search(name):
        return MASK
    inner, equals, rest = mask_login(value).partition("=")
    return f"{inner}={mask_value(inner, rest)}" if equals else inner


def mask_login(text: str) -> str:
    """A text with the logins of its URLs masked."""
    return _LOGIN.sub(MASK, text)


def is_masked(word: str) -> bool:
    """Whether a word is one that masking has taken something from: what it was must be given again."""
    return _MASKED.search(word) is not None


class _Line:
    """Masks the words of one command line, one after the other."""

    def __init__(self) -> None:
        self._hides_next = False

    def mask(self, word: str) -> str:
        hidden = self._hides_next
        name, equals, value = mask_login(word).partition("=")
        option = name.lstrip("-")
        self._hides_next = not equals and word.startswith("-") and _SECRET.search(option) is not None
        if hidden:
            return MASK
        return f"{name}={mask_value(option, value)}" if equals else name
