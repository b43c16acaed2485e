"""The report for a terminal: plain text, 80 to 120 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvbench.drawing.layout import TERMINAL, packed, unbroken, wrapped
from kvbench.drawing.width import width
from kvbench.reports.formats.format import ReportFormat
from kvbench.reports.sections import Kind, Section, sections, sections_of_several

if TYPE_CHECKING:
    from kvbench.summary.summary import Summary

_BEFORE = {Kind.NOTES: "note: ", Kind.REASONS: "- ", Kind.LIMITS: "- "}
"""What stands before each line of a section."""


def render(summary: Summary) -> str:
    """The whole report of a run."""
    return _text(sections(summary, TERMINAL))


def _text(parts: Iterable[Section]) -> str:
    """Sections with an empty line between."""
    return "\n\n".join("\n".join(_lines(part)) for part in parts) + "\n"


def _lines(section: Section) -> Iterator[str]:
    kind, heading = section.kind, unbroken(section.heading)
    if kind in (Kind.TITLE, Kind.RUN_TITLE):
        yield from packed(tuple(map(unbroken, section.lines)))
    elif kind is Kind.RUN:
        yield from (heading, "-" * min(len(heading), width()))
    elif kind is Kind.SOURCE:
        yield unbroken(": ".join(section.lines))
    else:
        if heading:
            yield heading if kind is Kind.TABLE else f"{heading}:"
        for line in section.lines:
            yield wrapped(line, _BEFORE.get(kind, ""), "  " if kind is Kind.OPTIONS else "")
    if section.table:
        yield section.table


FORMAT = ReportFormat("terminal", "", 1, lambda run: render(run.summary), lambda runs: _text(sections_of_several(runs, TERMINAL)))
