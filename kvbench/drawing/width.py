"""How wide a report for a terminal is: the narrowest that people have, unless a command found out how wide theirs is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

NARROWEST, WIDEST = 80, 120

_columns = NARROWEST


def width() -> int:
    """Columns of lines and tables."""
    return _columns


def set_width(columns: int) -> None:
    """Draw as wide as that, from 80 to 120 columns."""
    global _columns
    _columns = min(max(columns, NARROWEST), WIDEST)


@contextmanager
def of_terminal() -> Iterator[None]:
    """Draw as wide as the terminal of stdout (or ``$COLUMNS``) in the block; 80 columns where there is none."""
    before = _columns
    set_width(shutil.get_terminal_size((NARROWEST, 24)).columns)
    try:
        yield
    finally:
        set_width(before)
