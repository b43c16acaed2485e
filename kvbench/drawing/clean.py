"""Text that is not ours - words of servers, names in files of others - as it may be shown: nothing in it drives a terminal or a page."""

from __future__ import annotations

import re

_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
"""Control characters but tab and end of line, what turns the direction of text or ends a line unseen, and what UTF-8 or XML cannot hold."""


def clean(text: str) -> str:
    """The text with a replacement character for each one that is not safe to show, in a terminal, Markdown, HTML, XML or a file."""
    return re.sub(_UNSAFE, "\N{REPLACEMENT CHARACTER}", text)


def clean_json(text: str) -> str:
    """JSON with such characters escaped, so that programs read back what was there."""
    return re.sub(_UNSAFE, lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """The clean text on one line."""
    return clean(" ".join(text.split()))


def clean_cell(text: str) -> str:
    """The text as a cell of a CSV file that no spreadsheet takes for a formula; a number stays as it is."""
    sign = text.lstrip()[:1]
    return f"'{text}" if sign in ("=", "+", "@") or (sign == "-" and not _is_number(text)) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
