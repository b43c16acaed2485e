"""Colours of what a terminal shows: ``--color``, ``NO_COLOR``, and what is coloured. No word depends on them."""

from __future__ import annotations

import os
import re
from typing import Literal, TextIO

When = Literal["auto", "always", "never"]

BOLD, RED, GREEN, YELLOW = 1, 31, 32, 33

_VERDICTS = {"-": RED, r"\+": GREEN, "[~?]": YELLOW}
"""The mark before a verdict, at the end of a line of a table."""

_RULES = (
    (re.compile(r"\A.+(?:\n.* \| .*)*"), BOLD),  # what was measured
    (re.compile(r"(?<=\n\n).+(?=\n(?:arm|pass) )"), BOLD),  # the heading of a table
    (re.compile(r"(?<=\n\n)This run does not show:|None of these runs shows:"), BOLD),
    (re.compile(r"^Invalid measurement.*", re.MULTILINE), RED),
    (re.compile(r"^note:", re.MULTILINE), YELLOW),
    *((re.compile(rf"(?<= ){mark} +\(?[a-z][a-z ()]*$", re.MULTILINE), code) for mark, code in _VERDICTS.items()),  # of compare
    (re.compile(r"(?<=  )yes(?=  )"), GREEN),  # of doctor
    (re.compile(r"(?<=  )no(?=   )"), RED),
)

_when: When = "auto"


def choose(when: When) -> When:
    """Colour from now on as ``--color`` says."""
    global _when
    _when = when
    return when


def shown_on(stream: TextIO) -> bool:
    """Whether a stream gets colours: as ``--color`` says, else if it is a terminal and nobody asked for none (https://no-color.org)."""
    if _when != "auto":
        return _when == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, code: int) -> str:
    """The text in a colour."""
    return f"\x1b[{code}m{text}\x1b[0m"


def of_report(text: str) -> str:
    """A report for a terminal with its headings, notes and warnings in colour."""
    for pattern, code in _RULES:
        text = pattern.sub(lambda found, code=code: painted(found[0], code), text)  # type: ignore[misc]
    return text


def of_line(line: str, stream: TextIO) -> str:
    """A line for stderr, its first words in colour if it tells of an error or a warning."""
    head = re.match(r"kvbench: (error|warning):", line)
    if head is None or not shown_on(stream):
        return line
    return painted(head[0], RED if head[1] == "error" else YELLOW) + line[head.end() :]
