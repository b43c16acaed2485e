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
from kvbench.reports import tables
from kvbench.reports.controls import controls_table
from kvbench.reports.origin import Origin
from kvbench.summary.summary import Summary


@dataclass(frozen=True, slots=True)
class _Table:
    heading: str
    html: Markup


def render(summary: Summary, plots: Sequence[Plot], origin: Origin) -> str:
    """The page: sentences and reasons first, then tables and plots, notes, where and how it was run, and what it does not show."""
    return page("page.html.jinja", summary=summary, tables=list(_tables(summary)), lines=list(_lines(summary)), plots=plots, origin=origin)


def page(template: str, **values: Any) -> str:
    """A page from a template of this folder."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = templates.get_template(template).render(**values)
    return text.encode("utf-8", "replace").decode("utf-8") + "\n"  # names of files may hold what is no letter


def table(text: str) -> Markup:
    """A table, escaped already, with what stands behind it."""
    element, _, after = text.partition("</table>")
    return Markup(f"{element}</table>{Markup.escape(after)}")


def _tables(summary: Summary) -> Iterator[_Table]:
    for heading, text in _texts(summary):
        yield _Table(heading, table(text))


def _texts(summary: Summary) -> Iterator[tuple[str, str]]:
    yield from summary.reading.tables(summary.rows, HTML)
    if not summary.passes:
        yield from tables.documents_table(summary, HTML)
        return
    times = "predicted TTFT in ms" if summary.simulated else "TTFT in ms"
    yield f"By pass ({times}; tokens of one repeat)", tables.by_pass(summary, HTML)
    if summary.scheduled:
        yield "From the scheduled time (TTFT with the wait before sending)", tables.by_schedule(summary.scheduled, HTML)
    if summary.sources:
        yield "By source (tokens: median of a request)", tables.by_source(summary, HTML)
    yield from tables.sides(summary, HTML)
    yield from controls_table(summary, HTML)
    if summary.repeats:
        yield f"By repeat ({times})", tables.by_repeat(summary.repeats, HTML)
    yield from tables.documents_table(summary, HTML)


def _lines(summary: Summary) -> Iterator[str]:
    yield from tables.load_lines(summary.loads)
    yield from tables.stall_lines(summary.stalls)
    if summary.prediction:
        yield tables.prediction_line(summary.prediction)
    if line := tables.rates_line(summary):
        yield line
