"""The sections of a report, in their order. Terminal, Markdown and HTML draw the same list; a page gathers some kinds at other places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from kvbench.drawing.layout import Style

if TYPE_CHECKING:
    from kvbench.reports.formats.format import RunsReport
    from kvbench.summary.summary import Summary

Args = ParamSpec("Args")
UNTRUSTED = "Invalid measurement"


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


def _filled(make: Callable[Args, Iterator[Section]]) -> Callable[Args, Iterator[Section]]:
    """Without the sections that are empty; a run's heading is never."""

    @wraps(make)
    def filled(*args: Args.args, **kwargs: Args.kwargs) -> Iterator[Section]:
        return (section for section in make(*args, **kwargs) if section.lines or section.table or section.kind is Kind.RUN)

    return filled


def tables_of(drawn: Iterable[tuple[str, str]]) -> Iterator[Section]:
    """Headings and tables as sections."""
    return (Section(Kind.TABLE, heading, table=table) for heading, table in drawn)


def source(summary: Summary) -> Section:
    """Where the run lies."""
    return Section(Kind.SOURCE, lines=(summary.source, summary.path))


@_filled
def sections(summary: Summary, style: Style) -> Iterator[Section]:
    """The sections of a report of one run, their tables drawn in a style."""
    from kvbench.reports import tables  # late, as help reads this module: pandas

    times = "predicted TTFT in ms" if summary.simulated else "TTFT in ms"
    by_pass = tables.by_pass(summary, style) if summary.passes else ""
    yield Section(Kind.TITLE, lines=summary.title, table=by_pass, page_heading=f"By pass ({times}; tokens of one repeat)")
    yield from tables_of(tables.load_tables(summary, style))
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
    yield from tables_of(tables.controls_table(summary, style))
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


@_filled
def own_sections(summary: Summary, style: Style) -> Iterator[Section]:
    """What stands under a run's name beside others: its title with the main table, then the others, also by repeat and by document."""
    from kvbench.reports import tables

    yield Section(Kind.RUN_TITLE, lines=summary.title, table=tables.by_pass(summary, style) if summary.passes else "")
    yield from tables_of(summary.reading.tables(summary.rows, style))
    if summary.repeats:
        yield Section(Kind.TABLE, "By repeat (TTFT in ms)", table=tables.by_repeat(summary.repeats, style))
    if summary.documents:
        yield Section(Kind.TABLE, "By document (TTFT: median over repeats)", table=tables.by_document(summary.documents, style))
    yield source(summary)


@_filled
def sections_of_several(runs: RunsReport, style: Style) -> Iterator[Section]:
    """The sections of a report of several runs."""
    from kvbench.reports import side_by_side as several

    side = runs.side
    if any(summary.passes for _, summary in side.measured):
        yield Section(Kind.TABLE, "Side by side (TTFT in ms; speedup over the same run's baseline)", table=several.beside(side, style))
    yield Section(Kind.OPTIONS, lines=tuple(f"{label}: {options}" for label, options in several.differences(side)))
    yield from tables_of(several.joint_tables(side, style))
    yield Section(Kind.SENTENCES, lines=tuple(several.joint_sentences(side)))
    yield Section(Kind.MISSING, lines=tuple(several.told(side)))
    yield Section(Kind.NOTES, lines=tuple(several.notes(side, runs.full)))
    yield Section(Kind.REASONS, UNTRUSTED, side.reasons)
    for run, summary in side.measured:
        yield Section(Kind.RUN, several.marked(side.titled(run), run))
        yield from (sections if runs.full else own_sections)(summary, style)
    yield Section(Kind.LIMITS, "None of these runs shows", side.limits)
