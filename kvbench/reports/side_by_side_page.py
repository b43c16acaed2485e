"""Several runs as one HTML page that needs nothing else: the curve, the table of all, and each run's own tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kvbench.drawing.layout import HTML
from kvbench.drawing.plots import Plot
from kvbench.reports.formats import html
from kvbench.reports.side_by_side import beside, differences, joint_sentences, joint_tables, own_sections, told
from kvbench.summary.side_by_side import SideBySide


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    title: str
    sentences: tuple[str, ...]
    tables: tuple[tuple[str, Markup], ...]
    source: str
    path: str


def render(side: SideBySide, plots: Sequence[Plot]) -> str:
    """The page."""
    return html.page(
        "side_by_side.html.jinja",
        title=_title(side),
        side=side,
        plots=plots,
        beside=Markup(beside(side, HTML)) if any(summary.passes for _, summary in side.measured) else "",
        differences=differences(side),
        joint=[(heading, html.table(text)) for heading, text in joint_tables(side, HTML)],
        sentences=list(joint_sentences(side)),
        missing=list(told(side)),
        runs=list(_runs(side)),
    )


def _title(side: SideBySide) -> str:
    count = f"{len(side.runs)} runs"
    return count if side.key is None else f"{count} by {side.heading}: {', '.join(run.label for run in side.runs)}"


def _runs(side: SideBySide) -> Iterator[_Run]:
    for run, summary in side.measured:
        tables = tuple((part.heading, html.table(part.table)) for part in own_sections(summary, HTML) if part.table)
        yield _Run(side.titled(run), " · ".join(summary.title), summary.sentences, tables, summary.source, summary.path)
