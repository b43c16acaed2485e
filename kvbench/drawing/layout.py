"""How reports are laid out: tables and paragraphs, in a terminal as wide as :mod:`kvbench.drawing.width` says. Knows nothing of what they
show.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from html import escape
from io import StringIO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvbench.drawing.width import width

UNKNOWN = "–"
NO_TIER = "-"
Count = Callable[[float | None], str]
Cell = str | float | Callable[[Count], str] | None
"""Text as it is, a number that is drawn as a count (``None``: unknown), or text that is made with how counts are drawn."""


class Style(Enum):
    """How a format draws a table."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    HTML = "html"


TERMINAL, MARKDOWN, HTML = Style
_PADDINGS = ((0, 2, 0, 0), (0, 1, 0, 0))
"""The padding of cells to try in a terminal, widest first."""

_HEADER = 10
"""Columns of the head of a number, such as the name of an arm, where the table does not fit otherwise."""

_MARKUP = str.maketrans({sign: f"\\{sign}" for sign in "\\|*_`~"} | {"<": "&lt;", "&": "&amp;"})


def fitting(header: list[str], words: int, rows: Callable[[Count], list[list[str]]], style: Style) -> str:
    """The table; in a terminal at the widest padding that fits, then without separators of thousands, at last with names and heads folded.

    ``words``: how many leading columns hold names and are aligned left; the others hold numbers, which are never cut. Markdown and HTML
    have no width: whoever shows them folds them.
    """
    if style is HTML:
        return _html_table(header, words, rows(grouped))
    if style is MARKDOWN:
        return _markdown_table(header, words, rows(grouped))
    attempts = [*((grouped, padding) for padding in _PADDINGS), (_plain, _PADDINGS[-1])]
    console = Console(file=StringIO(), width=width(), color_system=None, force_terminal=False, legacy_windows=False)
    for count, padding in attempts:
        drawn = _table(header, words, rows(count), padding)
        if Measurement.get(console, console.options.update(width=10 * width()), drawn).maximum <= width():
            break
    else:
        folded = ["\n".join(textwrap.wrap(name, _HEADER)) if place >= words else name for place, name in enumerate(header)]
        drawn = _table(folded, words, rows(_plain), _PADDINGS[-1])
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def table(header: Sequence[str | None], words: int, rows: Iterable[Sequence[Cell]], style: Style) -> str:
    """The table of these cells, as :func:`fitting` draws it. A column without a head is left out."""

    def shown(cell: Cell, count: Count) -> str:
        return cell if isinstance(cell, str) else cell(count) if callable(cell) else count(cell)

    heads = [head for head in header if head is not None]
    lines = [[cell for head, cell in zip(header, row, strict=True) if head is not None] for row in rows]
    return fitting(heads, words, lambda count: [[shown(cell, count) for cell in line] for line in lines], style)


def escaped(text: str) -> str:
    """The text on one line as Markdown that shows it as it is: a name is no markup, and no bar ends a cell."""
    return " ".join(text.split()).translate(_MARKUP).replace("](", "]\\(")


def unbroken(text: str) -> str:
    """The text without ends of lines, so that a name adds no line to a report."""
    return text.replace("\n", " ")


def with_rest(table: str, rest: str, style: Style) -> str:
    """The table and a line behind it, which Markdown would take for a row of it without an empty one between."""
    return f"{table}\n\n{rest}" if style is MARKDOWN else f"{table}\n{rest}"


def packed(parts: tuple[str, ...]) -> list[str]:
    """As many parts a line as fit; a part is never broken."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= width():
            lines[-1] += f" | {part}"
        else:
            lines.append(part)
    return lines


def wrapped(text: str, first: str = "", indent: str = "") -> str:
    """The text in lines of at most the width, the later ones indented under ``first``, and by ``indent``.

    A number stays with its per cent sign.
    """
    filled = textwrap.fill(
        text.replace(" %", "\u00a0%"),
        width(),
        initial_indent=first,
        subsequent_indent=" " * len(first) + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace("\u00a0", " ")


def grouped(value: float | None) -> str:
    """A count with separators of thousands."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def _plain(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _markdown_table(header: list[str], words: int, rows: list[list[str]]) -> str:
    """The table as Markdown, every cell escaped, a row a line; columns are filled up, so that it reads well as text too."""
    lines = [[escaped(cell) for cell in line] for line in (header, *rows)]
    widths = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width if place < words else "-" * (width - 1) + ":" for place, width in enumerate(widths)]
    filled = [
        [cell.ljust(width) if place < words else cell.rjust(width) for place, (cell, width) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (filled[0], rule, *filled[1:]))


def _html_table(header: list[str], words: int, rows: list[list[str]]) -> str:
    """The table as HTML, every cell escaped; what identifies a row is its head."""
    sides = [' class="word"' if place < words else "" for place in range(len(header))]
    top = "".join(f'<th scope="col"{side}>{escape(name)}</th>' for side, name in zip(sides, header, strict=True))
    lines = [
        "".join(f'<th scope="row">{escape(cell)}</th>' if place < words else f"<td>{escape(cell)}</td>" for place, cell in enumerate(row))
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _table(header: list[str], words: int, rows: list[list[str]], padding: tuple[int, int, int, int]) -> Table:
    table = Table(box=None, show_edge=False, pad_edge=False, padding=padding)
    for place, name in enumerate(header):
        word = place < words
        table.add_column(Text(name), justify="left" if word else "right", no_wrap=not word, overflow="fold")
    for row in rows:
        table.add_row(*(Text(unbroken(cell)) for cell in row))
    return table
