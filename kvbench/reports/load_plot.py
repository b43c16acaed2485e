"""Throughput against latency: a point a pass of one run; over several runs, a line an arm and pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from kvbench.analysis.pass_rows import PassRow
from kvbench.drawing.numbers import decimal, milliseconds
from kvbench.drawing.plots import ARMS, WIDTH, Plot, drawn, printable
from kvbench.summary.side_by_side import SideBySide
from kvbench.summary.summary import Summary

MARKERS = "o^svDP"
PANELS = {"TTFT p50 (ms)": "ttft_ms", "E2EL p50 (ms)": "e2el_ms"}

Lines = Mapping[tuple[str, str], Sequence[PassRow]]
"""Rows by arm and pass label."""


def load_plot(summary: Summary) -> Iterator[Plot]:
    """The plot of a run whose report has the table of load."""
    return _plot(summary.passes if summary.shows_load else ())


def joint_load_plot(side: SideBySide) -> Iterator[Plot]:
    """The plot of several runs, in their order; none where fewer than two show load."""
    shown = [summary.passes for _, summary in side.measured if summary.shows_load]
    return _plot(row for passes in shown for row in passes) if len(shown) > 1 else iter(())


def _plot(rows: Iterable[PassRow]) -> Iterator[Plot]:
    lines: dict[tuple[str, str], list[PassRow]] = {}
    for row in rows:
        if None not in (row.output_throughput, row.ttft_ms.p50, row.e2el_ms.p50):
            lines.setdefault((row.arm, row.pass_label), []).append(row)
    if lines:
        yield drawn("load", "Output throughput against latency", _in_words(lines), _figure(lines))


def _figure(lines: Lines) -> Figure:
    figure = Figure(figsize=(WIDTH, 5.2), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    arms, passes = (list(dict.fromkeys(names)) for names in zip(*lines, strict=True))
    for axes, (label, field) in zip(panels, PANELS.items(), strict=True):
        for (arm, name), rows in lines.items():
            style = f"{MARKERS[passes.index(name) % len(MARKERS)]}{'-' if len(rows) > 1 else ''}"
            points = [row.output_throughput for row in rows], [getattr(row, field).p50 for row in rows]
            axes.plot(*points, style, color=ARMS[arms.index(arm) % len(ARMS)], markersize=5, label=printable(f"{arm}, {name}"))
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    panels[-1].set_xlabel("output tokens/s")
    panels[-1].set_xlim(left=0)
    keys, labels = panels[0].get_legend_handles_labels()
    figure.legend(keys, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _in_words(lines: Lines) -> str:
    return "; ".join(f"{arm}, {name}: {', '.join(map(_point, rows))}" for (arm, name), rows in lines.items()) + "."


def _point(row: PassRow) -> str:
    return f"{decimal(row.output_throughput)} output tokens/s at TTFT p50 {milliseconds(row.ttft_ms.p50)}"
