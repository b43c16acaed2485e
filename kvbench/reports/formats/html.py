"""The report as one HTML page that needs nothing else: no network, no script, light and dark, on screen and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from kvbench.drawing.clean import clean
from kvbench.drawing.layout import HTML
from kvbench.reports.formats.format import ReportFormat, RunReport, RunsReport
from kvbench.reports.sections import Kind, own_sections, sections

_PLACED = frozenset({Kind.SENTENCES, Kind.NOTES, Kind.REASONS, Kind.LIMITS, Kind.SOURCE})
"""Sections that have a place of their own in the template."""


def render(run: RunReport) -> str:
    """The page: sentences and reasons first, then tables and plots, notes, where and how it was run, and what it does not show."""
    from kvbench.reports.origin import origin_of  # late: pandas

    parts = list(sections(run.summary, HTML))
    drawn = [(part.page_heading or part.heading, _table(part.table)) for part in parts if part.table and part.on_page]
    lines = [line for part in parts if part.kind is Kind.LINES for line in part.lines]
    by_kind = {kind.name.lower(): next((part for part in parts if part.kind is kind), None) for kind in _PLACED}
    placed = {"tables": drawn, "lines": lines, "sections": by_kind, "alarm": run.summary.verdict.words is not None}
    return page("page.html.jinja", title=run.summary.title, plots=run.plots, origin=origin_of(run.view), **placed)


def render_several(runs: RunsReport) -> str:
    """The page of several runs: the curve, the table of all, and each run's own tables."""
    from kvbench.reports.side_by_side import beside, differences, joint_sentences, joint_tables, marked, notes, told  # late: pandas

    side = runs.side
    by = "" if side.key is None else f" by {side.heading}: {', '.join(run.label for run in side.runs)}"
    return page(
        "side_by_side.html.jinja",
        title=f"{len(side.runs)} runs{by}",
        side=side,
        plots=runs.plots,
        beside=Markup(beside(side, HTML)) if any(summary.passes for _, summary in side.measured) else "",
        differences=differences(side),
        joint=[(heading, _table(text)) for heading, text in joint_tables(side, HTML)],
        sentences=list(joint_sentences(side)),
        missing=list(told(side)),
        notes=list(notes(side)),
        runs=[
            (
                marked(side.titled(run), run),
                summary,
                [(part.heading, _table(part.table)) for part in own_sections(summary, HTML) if part.table],
            )
            for run, summary in side.measured
        ],
    )


def page(template: str, **values: Any) -> str:
    """A page from a template of this folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # late, as help reads this module

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return clean(templates.get_template(template).render(**values)) + "\n"


def _table(text: str) -> Markup:
    """A table, escaped already, with what stands behind it."""
    element, _, after = text.partition("</table>")
    return Markup(f"{element}</table>{Markup.escape(after)}")


FORMAT = ReportFormat("html", "one page with plots, which needs nothing else", 3, render, render_several, is_page=True)
