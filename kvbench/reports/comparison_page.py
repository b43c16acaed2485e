"""A comparison as one HTML page, which needs nothing else: the verdict, TTFT of both runs side by side, the tables, the notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from kvbench.comparison.baseline import Cell
from kvbench.comparison.compare import Comparison
from kvbench.drawing.clean import one_line
from kvbench.drawing.layout import HTML
from kvbench.drawing.numbers import milliseconds
from kvbench.drawing.plots import BLUE, GREY, WIDTH, Plot, drawn, theme
from kvbench.reports import comparison as report
from kvbench.reports.formats.html import page

FAR_APART = 30
"""Largest value ÷ smallest above which the axis is one of powers."""

Pairs = list[tuple[Cell, Cell]]
"""Each pass of an arm that both runs timed: the base's and the new run's."""

_CLASSES = {"-": "worse", "+": "better", "?": "doubt", "~": "doubt", "=": "same"}
_VERDICT = re.compile(r"<td>([-+?~=])</td><td>([^<]*)</td></tr>")


def render(comparison: Comparison) -> str:
    """The page."""
    tables = [(heading, Markup(_VERDICT.sub(_in_colour, table))) for heading, table in report.tables_of(comparison, HTML)]
    return page(
        "comparison.html.jinja",
        title="kvbench compare",
        verdict=report.tally(comparison),
        failed=report.fails(comparison),
        told=list(report.told(comparison)),
        sides=report.sides_in_words(comparison),
        tables=tables,
        legend=report.legend(comparison),
        notes=comparison.notes,
        plots=list(_plots(comparison)),
    )


def _in_colour(found: re.Match[str]) -> str:
    kind = _CLASSES[found[1]]
    return f'<td class="{kind}">{found[1]}</td><td class="{kind}">{found[2]}</td></tr>'


def _plots(comparison: Comparison) -> Iterator[Plot]:
    base = {(cell.arm, cell.pass_label): cell for cell in comparison.base.cells}
    found = [(base[cell.arm, cell.pass_label], cell) for cell in comparison.new.cells if (cell.arm, cell.pass_label) in base]
    pairs = [pair for pair in found if all(cell.ttft_ms.p50 is not None for cell in pair)]
    if pairs:
        with theme():
            yield drawn("ttft", "TTFT of base and new, by arm and pass", _in_words(pairs), _figure(pairs))


def _figure(pairs: Pairs) -> Figure:
    """Two rows a pass: a box from the 25th to the 75th percentile, whiskers from the 5th to the 95th, and a point a repeat."""
    figure = Figure(figsize=(WIDTH, 1.3 + 0.52 * len(pairs)), layout="constrained")
    axes: Any = figure.subplots()
    for row, pair in enumerate(pairs):
        for cell, colour, name, above in zip(pair, (GREY, BLUE), ("base", "new"), (-0.2, 0.2), strict=True):
            place, median = row + above, cell.ttft_ms.p50
            if cell.quantiles is not None:
                low, first, median, third, high = cell.quantiles
                axes.plot([low, high], [place, place], color=colour, linewidth=1.2)
                axes.barh(place, third - first, 0.28, left=first, color=colour, alpha=0.45)
            axes.plot([median], [place], "|", color=colour, markersize=11, markeredgewidth=2, label=name if row == 0 else None)
            medians = [repeat.p50 for repeat in cell.repeats if repeat.p50 is not None]
            axes.plot(medians, [place] * len(medians), ".", color=colour, markersize=5)
    axes.set_yticks(range(len(pairs)), [one_line(f"{cell.arm}, {cell.pass_label}") for cell, _ in pairs])
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    seen = [value for pair in pairs for cell in pair for value in (*(cell.quantiles or ()), cell.ttft_ms.p50) if value is not None]
    if min(seen) > 0 and max(seen) / min(seen) > FAR_APART:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.set_xlabel("TTFT (ms); box: half of the requests, line: 5 to 95 %, points: repeats' medians")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    return figure


def _in_words(pairs: Pairs) -> str:
    told = (f"{new.arm}, {new.pass_label}: {milliseconds(base.ttft_ms.p50)} to {milliseconds(new.ttft_ms.p50)}" for base, new in pairs)
    return f"TTFT p50, base to new: {'; '.join(told)}."
