"""The timeline of an arm: a row a request, its phases in colour, a mark a token (after figure 5 of the article on preemption)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from kvbench.analysis import timeline as phase
from kvbench.analysis.timeline import Phase, Timeline, TimelineRow
from kvbench.drawing.clean import one_line
from kvbench.drawing.numbers import milliseconds
from kvbench.drawing.plots import BLUE, GREY

COLOURS = {
    phase.QUEUED: GREY,
    phase.UNTIL_FIRST: "#b8860b",
    phase.PREFILL: "#b8860b",
    phase.DECODE: "#2b8050",
    phase.WAITING: "#c03a4e",
    phase.GAP: "#c03a4e",
    phase.SWAPPING: "#6c5ce0",
    phase.RESTORING: BLUE,
    phase.RECOMPUTING: "#c2611f",
    phase.FIRST_STEP: "#9a5cc6",
}
"""In the order of a request's life, which is that of the legend."""

THIN = frozenset({phase.QUEUED, phase.WAITING, phase.GAP})
"""Phases in which a request holds no KV on the device, or nobody knows; drawn as a thin bar."""

THICKNESS, THIN_THICKNESS = 0.76, 0.2
WIDTH, ROW, AROUND = 7.4, 0.17, 1.25
"""Inches: of the picture, of a row, and of what is above and below the rows."""
FEWEST = 4
"""Rows for which there is room at least."""

MOST_MARKS = 250
"""Tokens that can be told apart on the whole axis; of a denser stream every second is marked, or every fifth, tenth, ..."""


def timeline_figure(timeline: Timeline) -> Figure:
    """The picture; its time axis is as long as that of every other arm."""
    rows, every = timeline.rows, marked(timeline)
    figure = Figure(figsize=(WIDTH, AROUND + ROW * max(len(rows), FEWEST)), layout="constrained")
    axes = figure.subplots()
    for name, colour in COLOURS.items():
        thickness = THIN_THICKNESS if name in THIN else THICKNESS
        first = True
        for place, row in enumerate(rows):
            if spans := [(part.begin_s, part.end_s - part.begin_s) for part in row.phases if part.name == name]:
                bars = (place - thickness / 2, thickness)
                # With an edge of its own colour a phase that is shorter than a pixel is still there.
                axes.broken_barh(spans, bars, facecolor=colour, edgecolor=colour, linewidth=0.5, label=name if first else None)
                first = False
    axes.add_patch(PathPatch(_marks(rows, every), edgecolor="white", linewidth=0.5, alpha=0.75, fill=False))
    axes.set_yticks(np.arange(len(rows)), [label(row) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, timeline.span_s * 1.005)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    ordinal = {1: "a", 2: "every second"}.get(every, f"every {every:,}th")
    left_out = f"\n{timeline.left_out:,} of {timeline.requests:,} requests are left out: those that stood still least in every arm"
    axes.set_xlabel(f"seconds from the first request; a white mark is {ordinal} token{left_out if timeline.left_out else ''}")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=8, handlelength=1.2, columnspacing=1.4)
    return figure


def label(row: TimelineRow) -> str:
    """A request by its place in its pass; behind a stroke, which of its answers."""
    _, stroke, answer = row.request_id.rpartition("/")
    return one_line(f"request {row.position}{stroke}{answer if stroke else ''}")


def marked(timeline: Timeline) -> int:
    """Which of the tokens are marked: every so-manieth, that marks can be told apart."""
    gaps = [gap for row in timeline.rows for gap in np.diff(row.token_times_s)]
    if not gaps or timeline.span_s <= 0:
        return 1
    closeness = timeline.span_s / MOST_MARKS / max(float(np.median(gaps)), 1e-9)
    return next((step * scale for scale in (1, 10, 100, 1000) for step in (1, 2, 5) if step * scale >= closeness), 10_000)


def timeline_title(timeline: Timeline) -> str:
    """Which arm it is of."""
    where = "" if timeline.pass_label is None else f", pass {one_line(timeline.pass_label)}"
    return f"Timeline of arm {one_line(timeline.arm)}{where}, first repeat"


def timeline_description(timeline: Timeline) -> str:
    """The picture in words: when all had ended, the shares of the requests' time, and the longest stall with its parts."""
    rows, requests = timeline.rows, timeline.requests
    parts = [part for row in rows for part in row.phases]
    if not parts:
        return "No request was sent."
    whole = sum(_length(part) for part in parts)
    shares = {name: sum(_length(part) for part in parts if part.name == name) / whole for name in COLOURS}
    told = ", ".join(f"{name} {share * 100:.1f} %" for name, share in shares.items() if share)
    ends = f"{requests:,} request{'s' if requests > 1 else ''}, the last ended after {max(part.end_s for part in parts):,.2f} s."
    return f"{ends} Of the time of {'all' if not timeline.left_out else f'the {len(rows):,} that are shown'}: {told}.{_longest(rows)}"


def _longest(rows: tuple[TimelineRow, ...]) -> str:
    """The longest time that an answer stood still."""
    stalls = [(parts[-1].end_s - parts[0].begin_s, row, parts) for row in rows for parts in _stalls(row)]
    if not stalls:
        return ""
    total, row, parts = max(stalls, key=lambda stall: stall[0])
    spent = {name: sum(_length(part) for part in parts if part.name == name) for name in COLOURS}
    told = ", ".join(f"{name} {milliseconds(seconds * 1e3)}" for name, seconds in spent.items() if seconds)
    return f" The longest stall, {milliseconds(total * 1e3)}, is of {label(row)}: {told}."


def _stalls(row: TimelineRow) -> Iterator[list[Phase]]:
    """The phases of each stall: what is not decoding between the same two tokens."""
    for tokens, parts in groupby(row.phases, key=lambda part: bisect_right(row.token_times_s, part.begin_s)):
        if tokens and (stall := [part for part in parts if part.name != phase.DECODE]):
            yield stall


def _length(part: Phase) -> float:
    return part.end_s - part.begin_s


def _marks(rows: tuple[TimelineRow, ...], every: int) -> Path:
    """A short line for each token that is marked, in one path."""
    at = [(time, place) for place, row in enumerate(rows) for time in row.token_times_s[::every]]
    half = THICKNESS / 2
    points = [point for time, place in at for point in ((time, place - half), (time, place + half))]
    return Path(np.array(points).reshape(-1, 2), [Path.MOVETO, Path.LINETO] * len(at))
