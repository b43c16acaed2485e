"""The report as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvbench.drawing.layout import MARKDOWN, escaped, unbroken
from kvbench.reports.formats.format import ReportFormat
from kvbench.reports.sections import Kind, Section, sections, sections_of_several

if TYPE_CHECKING:
    from kvbench.summary.summary import Summary

_BEFORE = {Kind.NOTES: "- note: "} | dict.fromkeys((Kind.REASONS, Kind.LIMITS, Kind.OPTIONS, Kind.MISSING), "- ")
"""What stands before each item of a list; lines and sentences are paragraphs."""


def render(summary: Summary) -> str:
    """The same report as the terminal's, its tables as Markdown tables."""
    return _text(sections(summary, MARKDOWN))


def _text(parts: Iterable[Section]) -> str:
    """Sections, a paragraph each part of them."""
    return "\n\n".join(paragraph for part in parts for paragraph in _paragraphs(part)) + "\n"


def _paragraphs(section: Section) -> Iterator[str]:
    kind, title = section.kind, escaped(" · ".join(section.lines))
    if kind is Kind.TITLE:
        yield f"**{title}**"
    elif kind is Kind.RUN_TITLE:
        yield title
    elif kind is Kind.RUN:
        yield f"### {escaped(section.heading)}"
    elif kind is Kind.SOURCE:
        name, path = map(unbroken, section.lines)
        yield f"{name}: {escaped(path) if '`' in path else f'`{path}`'}"
    else:
        if section.heading:
            yield {Kind.TABLE: "{}", Kind.REASONS: "**{}:**"}.get(kind, "{}:").format(escaped(section.heading))
        if kind in _BEFORE:
            yield "\n".join(f"{_BEFORE[kind]}{escaped(line)}" for line in section.lines)
        else:
            yield from map(escaped, section.lines)
    if section.table:
        yield section.table


FORMAT = ReportFormat("markdown", "", 2, lambda run: render(run.summary), lambda runs: _text(sections_of_several(runs, MARKDOWN)))
