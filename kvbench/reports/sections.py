"""The sections of a report, in their order. Terminal, Markdown and HTML draw the same list; a page gathers some kinds at other places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from kvbench.drawing.layout import Style

if TYPE_CHECKING:
    from kvbench.summary.summary import Summary

UNTRUSTED = "Measured, and not to be trusted"


class Kind(Enum):
    """What a section is. The last five are of several runs."""

    TITLE = auto()
    TABLE = auto()
    LINES = auto()
    SENTENCES = auto()
    NOTES = auto()
    REASONS = auto()
    LIMITS = auto()
    SOURCE = auto()
    RUN = auto()
    RUN_TITLE = auto()
    OPTIONS = auto()
    MISSING = auto()


@dataclass(frozen=True, slots=True)
class Section:
    """One section; what is empty is not there.

    ``lines``: parts of a title, lines, sentences, or items of a list; of a source what it is, and its path. ``page_heading``: the heading
    in a page, where that is another. ``on_page``: whether a page shows the table.
    """

    kind: Kind
    heading: str = ""
    lines: tuple[str, ...] = ()
    table: str = ""
    page_heading: str = ""
    on_page: bool = True


def sections(summary: Summary, style: Style) -> Iterator[Section]:
    """The sections of a report of one run, their tables drawn in a style."""
    return (section for section in _sections(summary, style) if section.lines or section.table)


def tables_of(drawn: Iterable[tuple[str, str]]) -> Iterator[Section]:
    """Headings and tables as sections."""
    return (Section(Kind.TABLE, heading, table=table) for heading, table in drawn)


def source(summary: Summary) -> Section:
    """Where the run lies."""
    return Section(Kind.SOURCE, lines=(summary.source, summary.path))


def _sections(summary: Summary, style: Style) -> Iterator[Section]:
    from kvbench.reports import tables  # late, as help reads this module: pandas
    from kvbench.reports.controls import controls_table

    times = "predicted TTFT in ms" if summary.simulated else "TTFT in ms"
    by_pass = tables.by_pass(summary, style) if summary.passes else ""
    yield Section(Kind.TITLE, lines=summary.title, table=by_pass, page_heading=f"By pass ({times}; tokens of one repeat)")
    yield from tables_of(summary.reading.tables(summary.rows, style))
    tiers = bool(summary.passes)
    if summary.scheduled:
        heading = "From the scheduled time (TTFT with the wait before sending)"
        yield Section(Kind.TABLE, heading, table=tables.by_schedule(summary.scheduled, style), on_page=tiers)
    if summary.sources:
        yield Section(Kind.TABLE, "By source (tokens: median of a request)", table=tables.by_source(summary, style), on_page=tiers)
    yield Section(Kind.LINES, lines=tuple(tables.load_lines(summary.loads)))
    yield Section(Kind.LINES, lines=tuple(tables.stall_lines(summary.stalls)))
    if summary.prediction:
        yield Section(Kind.LINES, lines=(tables.prediction_line(summary.prediction),))
    yield from tables_of(tables.sides(summary, style))
    yield from tables_of(controls_table(summary, style))
    if line := tables.rates_line(summary):
        yield Section(Kind.LINES, lines=(line,))
    if summary.repeats:
        by_repeat = tables.by_repeat(summary.repeats, style)
        yield Section(Kind.TABLE, "By repeat (TTFT in ms)", table=by_repeat, page_heading=f"By repeat ({times})", on_page=tiers)
    yield from tables_of(tables.documents_table(summary, style))
    yield Section(Kind.SENTENCES, lines=summary.sentences)
    yield Section(Kind.NOTES, lines=summary.notes)
    yield Section(Kind.REASONS, UNTRUSTED, summary.reasons)
    yield Section(Kind.LIMITS, "This run does not show", summary.limits)
    yield source(summary)
