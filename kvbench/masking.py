"""Command lines, options and environments as they may be shown and kept: secrets masked."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

_SECRET = re.compile(r"(?:^|[_-])(?:header|key|token|secret|password|passwd|credentials?|auth)(?:$|[_-])", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def mask_command(command: Sequence[str]) -> list[str]:
    """The words of a command line; the value of an option whose name says that it is secret is masked, and so is a login in a URL."""
    masked: list[str] = []
    hide_next = False
    for word in command:
        name, equals, value = word.partition("=")
        secret = word.startswith("-") and _SECRET.search(name.lstrip("-")) is not None
        masked.append(MASK if hide_next else f"{name}={mask_value(name.lstrip('-'), value)}" if equals else _LOGIN.sub(MASK, word))
        hide_next = secret and not equals
    return masked


def mask_value(name: str, value: str) -> str:
    """A value as it may be shown; it may be a name and its value in turn."""
    if _SECRET.search(name):
        return MASK
    inner, equals, rest = value.partition("=")
    return f"{_LOGIN.sub(MASK, inner)}={mask_value(inner, rest)}" if equals else _LOGIN.sub(MASK, value)
