"""The curve of several runs: TTFT p50, speedup and hits over the option in which they differ, a line an arm and pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from matplotlib.figure import Figure

from kvbench.analysis.pass_rows import PassRow
from kvbench.drawing.clean import one_line
from kvbench.drawing.numbers import milliseconds, times
from kvbench.drawing.plots import ARMS, THEME, WIDTH, Plot, drawn, theme
from kvbench.reports.load_plot import joint_load_plot
from kvbench.reports.side_by_side import SPEEDUP, hit_rate, over
from kvbench.summary.side_by_side import INVALID, MARKS, UNSTEADY, SideBySide

ROOM = 2.0
"""How many times as high as its highest point an axis is at most: a wide interval would flatten all that there is to see."""

FAR_APART = 30
"""Largest value ÷ smallest above which values are drawn on a scale of powers."""

MARKERS, DASHES = "o^svDP", ("-", "--", ":", "-.")
SHAPES = {INVALID: "x", UNSTEADY: "o"}
"""What is drawn over the points of a run with a mark."""

LONGEST = 14
"""Letters of a value's name that are shown."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Where each run stands on the x axis, by its name.

    ``labels``, ``marks``: by place. ``numeric``: each by its value; else one after the other.
    """

    places: Mapping[str, float]
    labels: Mapping[float, str]
    marks: Mapping[float, str]
    numeric: bool

    @property
    def powers(self) -> bool:
        """Whether the scale is one of powers."""
        return self.numeric and min(self.labels) > 0 and max(self.labels) / min(self.labels) > FAR_APART

    def doubt(self, place: float) -> str:
        """What the mark of the run there means, in brackets; nothing where it has none."""
        return f" ({MARKS[mark]})" if (mark := self.marks.get(place)) else ""


@dataclass(frozen=True, slots=True)
class _CurveLine:
    """One arm and pass over the runs: its places on the axis, in order, and rows. ``baseline``: the arm is that of each of these runs."""

    arm: str
    pass_label: str
    points: list[tuple[float, PassRow]]
    baseline: bool


@dataclass(frozen=True, slots=True)
class _Panel:
    """What is drawn over the runs: its name, the label of its axis, its value in a pass, and the value in words."""

    name: str
    label: str
    value: Callable[[PassRow], float | None]
    words: Callable[[float], str]


def curve(side: SideBySide) -> tuple[Plot, ...]:
    """The plot; none where fewer than two runs have anything to draw."""
    if len(side.measured) < 2:
        return ()
    axis = axis_of(side)
    lines = _lines(side, axis)
    panels = [panel for panel in _panels(side) if any(_known(line, panel) for line in lines)]
    if not panels:
        return ()
    names = [panel.name for panel in panels]
    named = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    title, description = f"{named} by {side.heading}", _in_words(panels[0], lines, axis)
    with theme():
        return (drawn("curve", title, description, _figure(panels, lines, axis, side.heading)), *joint_load_plot(side))


def axis_of(side: SideBySide) -> Axis:
    """By value where each run has a number of its own."""
    runs = [run for run, _ in side.measured]
    values = [None if side.key is None else run.options.get(side.key) for run in runs]
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    numeric = len(set(numbers)) == len(runs)
    places = numbers if numeric else [float(place) for place in range(len(runs))]
    return Axis(
        places={run.name: place for run, place in zip(runs, places, strict=True)},
        labels={place: run.label for run, place in zip(runs, places, strict=True)},
        marks={place: run.mark for run, place in zip(runs, places, strict=True) if run.mark},
        numeric=numeric,
    )


def _panels(side: SideBySide) -> list[_Panel]:
    predicted = [summary.simulated for _, summary in side.measured]
    ttft = "Predicted TTFT p50" if all(predicted) else "TTFT p50, some predicted" if any(predicted) else "TTFT p50"
    speedup = over(side) if over(side) == SPEEDUP else f"{SPEEDUP} {over(side)}"
    return [
        _Panel(ttft, f"{ttft} (ms)", lambda row: row.ttft_ms.p50, milliseconds),
        _Panel(SPEEDUP, speedup, lambda row: row.speedup.p50, times),
        _Panel("hits", "hits (% of prompt tokens)", _hits, lambda rate: f"{rate:.0f} %"),
    ]


def _hits(row: PassRow) -> float | None:
    rate = hit_rate(row)
    return None if rate is None else rate * 100


def _lines(side: SideBySide, axis: Axis) -> list[_CurveLine]:
    found: dict[tuple[str, str], list[tuple[float, PassRow]]] = {}
    others: set[tuple[str, str]] = set()
    for run, summary in side.measured:
        for row in summary.passes:
            found.setdefault((row.arm, row.pass_label), []).append((axis.places[run.name], row))
            if row.arm != summary.baseline:
                others.add((row.arm, row.pass_label))
    return [_CurveLine(*key, sorted(points, key=itemgetter(0)), key not in others) for key, points in found.items()]


def _known(line: _CurveLine, panel: _Panel) -> list[tuple[float, float, PassRow]]:
    """Places, values and rows of a line where the value is known; a baseline's speedup over itself tells nothing."""
    if panel.name == SPEEDUP and line.baseline:
        return []
    return [(place, value, row) for place, row in line.points if (value := panel.value(row)) is not None]


def _figure(panels: Sequence[_Panel], lines: Sequence[_CurveLine], axis: Axis, heading: str) -> Figure:
    figure = Figure(figsize=(WIDTH, 0.9 + 2.3 * len(panels)), layout="constrained")
    drawn = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    arms, passes = (list(dict.fromkeys(names)) for names in zip(*((line.arm, line.pass_label) for line in lines), strict=True))
    for axes, panel in zip(drawn, panels, strict=True):
        for line in lines:
            _draw(axes, panel, line, arms.index(line.arm), passes.index(line.pass_label), axis.numeric)
        _mark(axes, panel, lines, axis)
        axes.set_ylabel(panel.label)
        highest = max(value for line in lines for _, value, _ in _known(line, panel))
        axes.set_ylim(0, min(axes.get_ylim()[1], ROOM * highest) if highest > 0 else None)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    _scale(drawn[-1], axis, heading)
    keys = {label: key for axes in drawn for key, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(keys.values(), keys.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw(axes: Any, panel: _Panel, line: _CurveLine, arm: int, index: int, joined: bool) -> None:
    """A line, dashed by pass and coloured by arm; categories have nothing between them, so their points are not joined."""
    known = _known(line, panel)
    if not known:
        return
    places, values, rows = zip(*known, strict=True)
    colour, style = ARMS[arm % len(ARMS)], DASHES[index % len(DASHES)] if joined else ""
    marker, name = MARKERS[index % len(MARKERS)], one_line(f"{line.arm}, {line.pass_label}")
    axes.plot(places, values, linestyle=style, marker=marker, markersize=5, color=colour, label=name)
    intervals = [row.speedup.p50_interval for row in rows]
    if panel.name == SPEEDUP and any(intervals):
        ends = [interval or (value, value) for interval, value in zip(intervals, values, strict=True)]
        away = [(max(value - low, 0.0), max(high - value, 0.0)) for value, (low, high) in zip(values, ends, strict=True)]
        axes.errorbar(places, values, yerr=list(zip(*away, strict=True)), fmt="none", ecolor=colour, capsize=3)


def _mark(axes: Any, panel: _Panel, lines: Sequence[_CurveLine], axis: Axis) -> None:
    """Mark the points of runs whose figures are in doubt; hits are exact in a run whose times are unsteady."""
    for mark, shape in SHAPES.items():
        if mark == UNSTEADY and panel.value is _hits:
            continue
        points = [(place, value) for line in lines for place, value, _ in _known(line, panel) if axis.marks.get(place) == mark]
        if points:
            places, values = zip(*points, strict=True)
            look = {"markerfacecolor": "none", "color": THEME["text.color"], "markeredgewidth": 1.2}
            axes.plot(places, values, linestyle="", marker=shape, markersize=11, label=MARKS[mark], **look)


def _scale(axes: Any, axis: Axis, heading: str) -> None:
    axes.set_xlabel(one_line(heading))
    if axis.powers:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(lambda *_: "")
    if not axis.numeric:
        axes.set_xlim(-0.5, len(axis.labels) - 0.5)
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in map(one_line, axis.labels.values())]
    tilted = max(map(len, names)) > 6 and len(names) > 4
    axes.set_xticks(list(axis.labels), names, rotation=30 if tilted else 0, ha="right" if tilted else "center")


def _in_words(panel: _Panel, lines: Sequence[_CurveLine], axis: Axis) -> str:
    parts = []
    for line in lines:
        if told := [f"{panel.words(value)} at {axis.labels[place]}{axis.doubt(place)}" for place, value, _ in _known(line, panel)]:
            parts.append(f"{line.arm}, {line.pass_label}: {', '.join(told)}")
    return f"{panel.name}: {'; '.join(parts)}."
