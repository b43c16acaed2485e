"""The plots of a run, as SVG with a title and a description in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.points import ForeseenPoints, PassPoints, Points, points_of
from kvbench.analysis.run_view import RunView
from kvbench.analysis.timeline import GAP
from kvbench.drawing.numbers import milliseconds
from kvbench.drawing.plots import ARMS, BLUE, GREY, THEME, WIDTH, Plot, drawn, printable, theme
from kvbench.reports.load_plot import load_plot
from kvbench.reports.timeline import timeline_description, timeline_figure, timeline_title
from kvbench.summary.summary import Summary

TIERS = {"device": "#2b8050", "host": BLUE, "computed": GREY}
SPENT = {"waiting": GREY, "restoring": BLUE, "recomputing": "#c2611f", "first step": "#9a5cc6", GAP: GREY}

MOST_BARS = 24
"""Places up to which a pass is drawn as bars with the documents' names; above, as points."""

MOST_PASSES = 12
"""Passes that are drawn by document; of the others the tables tell."""

LEAST_LABEL = 0.08
"""Share of the widest bar from which a part has room for its number."""

FAR_APART = 5

NAME = 18
"""Letters of a name that are shown."""


def run_plots(summary: Summary, view: RunView) -> tuple[Plot, ...]:
    """Those plots for which the run has data."""
    reading = summary.reading
    with theme():
        own = tuple(reading.plots(view))
        common = tuple(_plots(summary, points_of(view, reading.shows_timelines)))
    return (*own, *common) if reading.plots_first else (*common, *own)


def _plots(summary: Summary, points: Points) -> Iterator[Plot]:
    ttft = "Predicted TTFT" if summary.simulated else "TTFT"
    arms = list(dict.fromkeys(item.arm for item in points.passes))
    if any(not np.isnan(item.ttft_ms).all() for item in points.passes):
        places = "document and pass" if summary.passes else "request"
        yield drawn(
            "ttft",
            f"{ttft} by {places}",
            _sentence(f"{item.arm}, {item.pass_label}: {_range(item.ttft_ms)}" for item in points.passes),
            _passes_figure(points.passes, arms),
        )
    if counted := [row for row in summary.passes if None not in (row.device, row.computed, row.host if row.tier else 0)]:
        yield drawn("tokens", "Prompt tokens by tier", _of_tokens(counted), _tokens_figure(counted))
    yield from load_plot(summary)
    if points.sources:
        yield drawn("sources", f"{ttft} by source", _of_sources(points), _sources_figure(points, arms))
    if points.stalls:
        yield drawn("stalls", "Stalls, the longest first", _of_stalls(points), _stalls_figure(points))
    for item in points.timelines:
        yield drawn(f"timeline-{item.arm}", timeline_title(item), timeline_description(item), timeline_figure(item))
    if points.foreseen:
        told = _sentence(f"{item.arm}: in the median measured ÷ predicted is {_ratio(item)}" for item in points.foreseen)
        yield drawn("prediction", "TTFT, predicted against measured", told, _foreseen_figure(points, arms))


def _passes_figure(passes: Sequence[PassPoints], arms: list[str]) -> Figure:
    shown = list(dict.fromkeys(item.pass_label for item in passes))[:MOST_PASSES]
    height = 1.55 + 0.07 * max(len(_name(document)) for item in passes for document in item.documents or ("",))
    figure = Figure(figsize=(WIDTH, 0.7 + height * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharey=True, squeeze=False)[:, 0]
    for axes, label in zip(panels, shown, strict=True):
        for item in (item for item in passes if item.pass_label == label):
            _pass_bars(axes, item, arms.index(item.arm), len(arms))
        axes.set_title(_name(label), loc="left", fontsize=9)
        axes.yaxis.set_major_formatter(_plain)
        axes.set_ylabel("ms")
        axes.grid(axis="x", visible=False)
    panels[0].set_ylim(bottom=0)
    if len(arms) > 1:
        keys = {label: key for axes in panels for key, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(keys.values(), keys.keys(), loc="outside upper right", ncols=len(arms), frameon=False)
    return figure


def _pass_bars(axes: Any, item: PassPoints, arm: int, arms: int) -> None:
    places, colour = np.arange(len(item.ttft_ms)), _colour(arm)
    if len(places) <= MOST_BARS and item.merged == 1:
        width = 0.8 / arms
        axes.bar(places + (arm - (arms - 1) / 2) * width, item.ttft_ms, width, color=colour, label=_name(item.arm))
        names = [_name(document) for document in item.documents]
        tilted = max(map(len, names)) > 4
        axes.set_xticks(places, names, rotation=30 if tilted else 0, ha="right" if tilted else "center")
        return
    axes.plot(places * item.merged, item.ttft_ms, _marker(arm), markersize=3, color=colour, label=_name(item.arm))
    axes.xaxis.set_major_formatter(_plain)
    axes.set_xlabel("place in the pass" if item.merged == 1 else f"place in the pass; a point: median of {item.merged:,} neighbours")


def _tokens_figure(rows: Sequence[PassRow]) -> Figure:
    tokens = {tier: np.array([getattr(row, tier) or 0 for row in rows], dtype=np.float64) for tier in TIERS}
    least = LEAST_LABEL * max(sum(counts) for counts in zip(*tokens.values(), strict=True))
    figure = _stacked([f"{_name(row.arm)}, {_name(row.pass_label)}" for row in rows], tokens, TIERS, 0.3, least)
    figure.axes[0].set_xlabel("tokens of one repeat")
    return figure


def _stalls_figure(points: Points) -> Figure:
    spent = {what: np.array([dict(stall.parts).get(what, 0.0) for stall in points.stalls]) for what in SPENT}
    names = [f"{_name(stall.request_id)}, token {stall.after_token:,}" for stall in points.stalls]
    figure = _stacked(names, {what: times for what, times in spent.items() if times.any()}, SPENT, 0.26)
    figure.axes[0].set_xlabel("ms")
    return figure


def _stacked(names: list[str], parts: Mapping[str, Any], colours: Mapping[str, str], row: float, least: float | None = None) -> Figure:
    """A bar a name, of the values of its parts. ``row``: inches; ``least``: a part above it has its number on it."""
    figure = Figure(figsize=(WIDTH, 1.0 + row * len(names)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(names))
    for part, values in parts.items():
        bars = axes.barh(np.arange(len(names)), values, left=left, height=0.72, color=colours[part], label=part)
        if least is not None:
            labels = [f"{value:,.0f}" if value > least else "" for value in values]
            axes.bar_label(bars, labels, label_type="center", color="black" if colours[part] == GREY else "white", fontsize=8)
        left += values
    _rows(axes, names)
    axes.xaxis.set_major_formatter(_plain)
    figure.legend(loc="outside upper right", ncols=len(colours), frameon=False)
    return figure


def _sources_figure(points: Points, arms: list[str]) -> Figure:
    found = points.sources
    figure = Figure(figsize=(WIDTH, 0.9 + 0.36 * len(found)), layout="constrained")
    axes = figure.subplots()
    for row, item in enumerate(found):
        spread = (np.arange(len(item.ttft_ms)) * 0.618034 % 1 - 0.5) * 0.5  # side by side without a pattern, and the same every time
        axes.plot(item.ttft_ms, row + spread, ".", markersize=4, alpha=0.6, color=_colour(arms.index(item.arm)))
        axes.plot([item.p50_ms], [row], "|", markersize=16, markeredgewidth=1.6, color=THEME["text.color"])
    _rows(axes, [f"{_name(item.arm)}, {item.source} (n {item.n:,})" for item in found])
    _milliseconds(axes, "x", [item.ttft_ms for item in found])
    fewer = any(item.n > len(item.ttft_ms) for item in found)
    axes.set_xlabel(f"ms; a point is {'a quantile where there are many requests' if fewer else 'a request'}, the bar the median")
    return figure


def _foreseen_figure(points: Points, arms: list[str]) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
    axes = figure.subplots()
    everything = [values for item in points.foreseen for values in (item.predicted_ms, item.measured_ms)]
    ends = [min(values.min() for values in everything), max(values.max() for values in everything)]
    axes.plot(ends, ends, color=THEME["text.color"], linewidth=0.8, linestyle="--", label="as predicted")
    for item in points.foreseen:
        arm, name = arms.index(item.arm), _name(item.arm)
        axes.plot(item.predicted_ms, item.measured_ms, _marker(arm), markersize=4, alpha=0.6, color=_colour(arm), label=name)
    _milliseconds(axes, "x", everything)
    _milliseconds(axes, "y", everything)
    axes.set_xlabel("predicted TTFT (ms)")
    axes.set_ylabel("measured TTFT (ms)")
    axes.legend(frameon=False, loc="best")
    return figure


def _rows(axes: Any, names: list[str]) -> None:
    """Rows with names, the first on top."""
    axes.set_yticks(np.arange(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def _milliseconds(axes: Any, side: str, values: Sequence[Any]) -> None:
    """Plain numbers, on a scale of powers where the values are far apart."""
    low, high = min(part.min() for part in values), max(part.max() for part in values)
    axis = {"x": axes.xaxis, "y": axes.yaxis}[side]
    if low > 0 and high / low > FAR_APART:
        {"x": axes.set_xscale, "y": axes.set_yscale}[side]("log")
        axis.set_minor_formatter(lambda value, _: _plain(value) if f"{value:e}"[0] in "25" else "")
    axis.set_major_formatter(_plain)


def _plain(value: float, _: object = None) -> str:
    """A number on an axis."""
    return f"{value:,.6g}"


def _colour(arm: int) -> str:
    return ARMS[arm % len(ARMS)]


def _marker(arm: int) -> str:
    return "o^svDP"[arm % len(ARMS)]


def _name(text: str) -> str:
    """A name that fits beside a bar."""
    name = printable(text)
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


# In words.


def _of_tokens(rows: Sequence[PassRow]) -> str:
    return _sentence(
        f"{row.arm}, {row.pass_label}: {row.device:,} device, {'' if not row.tier else f'{row.host:,} host, '}{row.computed:,} computed"
        for row in rows
    )


def _of_sources(points: Points) -> str:
    return _sentence(
        f"{item.arm}, {item.source}: median {milliseconds(item.p50_ms)} of {item.n:,}, {_range(item.ttft_ms)}" for item in points.sources
    )


def _of_stalls(points: Points) -> str:
    longest = points.stalls[0]
    where = f"{longest.request_id}, after token {longest.after_token:,}"
    return f"The longest of the {len(points.stalls)} that are shown: {milliseconds(longest.total_ms)} ({where})."


def _ratio(item: ForeseenPoints) -> str:
    timed = item.predicted_ms > 0
    return f"{np.median(item.measured_ms[timed] / item.predicted_ms[timed]):.2f}" if timed.any() else "–"


def _range(values: Any) -> str:
    known = values[~np.isnan(values)]
    return f"{milliseconds(float(known.min()))} to {milliseconds(float(known.max()))}" if len(known) else "no first token"


def _sentence(parts: Iterable[str]) -> str:
    return "; ".join(parts) + "."
