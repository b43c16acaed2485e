"""The report as one HTML page that needs nothing else: no network, no script, light and dark, on screen and on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kvbench.drawing.layout import HTML
from kvbench.drawing.plots import Plot
from kvbench.reports.origin import Origin
from kvbench.reports.sections import Kind, sections
from kvbench.reports.side_by_side import beside, differences, joint_sentences, joint_tables, own_sections, told
from kvbench.summary.side_by_side import SideBySide
from kvbench.summary.summary import Summary

_PLACED = frozenset({Kind.SENTENCES, Kind.NOTES, Kind.REASONS, Kind.LIMITS, Kind.SOURCE})
"""Sections that have a place of their own in the template."""


@dataclass(frozen=True, slots=True)
class _Table:
    heading: str
    html: Markup


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    title: str
    sentences: tuple[str, ...]
    tables: tuple[tuple[str, Markup], ...]
    source: str
    path: str


def render(summary: Summary, plots: Sequence[Plot], origin: Origin) -> str:
    """The page: sentences and reasons first, then tables and plots, notes, where and how it was run, and what it does not show."""
    parts = list(sections(summary, HTML))
    drawn = [_Table(part.page_heading or part.heading, _table(part.table)) for part in parts if part.table and part.on_page]
    lines = [line for part in parts if part.kind is Kind.LINES for line in part.lines]
    by_kind = {kind.name.lower(): next((part for part in parts if part.kind is kind), None) for kind in _PLACED}
    return _page("page.html.jinja", title=summary.title, tables=drawn, lines=lines, plots=plots, origin=origin, sections=by_kind)


def render_several(side: SideBySide, plots: Sequence[Plot]) -> str:
    """The page of several runs: the curve, the table of all, and each run's own tables."""
    return _page(
        "side_by_side.html.jinja",
        title=_title(side),
        side=side,
        plots=plots,
        beside=Markup(beside(side, HTML)) if any(summary.passes for _, summary in side.measured) else "",
        differences=differences(side),
        joint=[(heading, _table(text)) for heading, text in joint_tables(side, HTML)],
        sentences=list(joint_sentences(side)),
        missing=list(told(side)),
        runs=list(_runs(side)),
    )


def _page(template: str, **values: Any) -> str:
    """A page from a template of this folder."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = templates.get_template(template).render(**values)
    return text.encode("utf-8", "replace").decode("utf-8") + "\n"  # names of files may hold what is no letter


def _table(text: str) -> Markup:
    """A table, escaped already, with what stands behind it."""
    element, _, after = text.partition("</table>")
    return Markup(f"{element}</table>{Markup.escape(after)}")


def _title(side: SideBySide) -> str:
    count = f"{len(side.runs)} runs"
    return count if side.key is None else f"{count} by {side.heading}: {', '.join(run.label for run in side.runs)}"


def _runs(side: SideBySide) -> Iterator[_Run]:
    for run, summary in side.measured:
        tables = tuple((part.heading, _table(part.table)) for part in own_sections(summary, HTML) if part.table)
        yield _Run(side.titled(run), " · ".join(summary.title), summary.sentences, tables, summary.source, summary.path)
