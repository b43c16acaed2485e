"""How reports are laid out: tables and paragraphs that fit 80 columns. Knows nothing of what they show."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from io import StringIO

from rich.box import MARKDOWN as MARKDOWN_BOX
from rich.box import Box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

WIDTH = 80
UNKNOWN = "–"
NO_TIER = "-"
Count = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Style:
    """How a format draws a table: its box, whether the box has sides, and the padding of cells to try, widest first; or as HTML."""

    box: Box | None
    sides: bool
    paddings: tuple[tuple[int, int, int, int], ...]
    html: bool = False


TERMINAL = Style(box=None, sides=False, paddings=((0, 2, 0, 0), (0, 1, 0, 0)))
MARKDOWN = Style(box=MARKDOWN_BOX, sides=True, paddings=((0, 1, 0, 1), (0, 0, 0, 0)))
HTML = Style(box=None, sides=False, paddings=(), html=True)


def fitting(header: list[str], words: int, rows: Callable[[Count], list[list[str]]], style: Style) -> str:
    """The table at the widest padding that fits; then without the separators of thousands; at last names are folded.

    ``words``: how many leading columns hold names and are aligned left; the others hold numbers, which are never cut.
    """
    if style.html:
        return _html_table(header, words, rows(grouped))
    attempts = [*((grouped, padding) for padding in style.paddings), (_plain, style.paddings[-1])]
    console = Console(file=StringIO(), width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    for count, padding in attempts:
        table = _table(header, words, rows(count), style, padding)
        if Measurement.get(console, console.options.update(width=10 * WIDTH), table).maximum <= WIDTH:
            break
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines() if line.strip())


def packed(parts: tuple[str, ...]) -> list[str]:
    """As many parts a line as fit; a part is never broken."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= WIDTH:
            lines[-1] += f" | {part}"
        else:
            lines.append(part)
    return lines


def wrapped(text: str, first: str = "") -> str:
    """The text in lines of at most 80 columns, the later ones indented under ``first``; a number stays with its per cent sign."""
    filled = textwrap.fill(
        text.replace(" %", "\u00a0%"),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace("\u00a0", " ")


def grouped(value: float | None) -> str:
    """A count with separators of thousands."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def _plain(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _html_table(header: list[str], words: int, rows: list[list[str]]) -> str:
    """The table as HTML, every cell escaped; what identifies a row is its head."""
    top = "".join(f'<th scope="col"{_side(place < words)}>{escape(name)}</th>' for place, name in enumerate(header))
    lines = [
        "".join(f'<th scope="row">{escape(cell)}</th>' if place < words else f"<td>{escape(cell)}</td>" for place, cell in enumerate(row))
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _side(word: bool) -> str:
    return ' class="word"' if word else ""


def _table(header: list[str], words: int, rows: list[list[str]], style: Style, padding: tuple[int, int, int, int]) -> Table:
    table = Table(box=style.box, show_edge=style.sides, pad_edge=style.sides, padding=padding)
    for place, name in enumerate(header):
        word = place < words
        table.add_column(Text(name), justify="left" if word else "right", no_wrap=not word, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
