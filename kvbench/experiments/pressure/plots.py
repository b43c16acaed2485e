"""Recompute against restore over the history: the measured lines, and the floors under them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from kvbench.drawing.plots import BLUE, WIDTH, Plot, drawn, theme
from kvbench.experiments.pressure.crossover import CrossoverRow, read

RECOMPUTE = "#c2611f"


def crossover_plots(rows: Sequence[CrossoverRow]) -> tuple[Plot, ...]:
    """The plot; none below two lengths of history that were compared."""
    known = sorted((row for row in rows if row.ratio is not None), key=lambda row: row.context)
    if len(known) < 2:
        return ()
    title = "Recompute against restore, to the next token" + ("" if known[0].link is None else f" ({known[0].link})")
    with theme():
        return (drawn("crossover", title, " ".join(read(rows)), _figure(known)),)


def _figure(rows: Sequence[CrossoverRow]) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    contexts = [row.context for row in rows]
    lines = (
        ("recompute", [row.recompute_ms for row in rows], RECOMPUTE, "o-"),
        ("its floor: FLOPs ÷ matrix rate", [row.recompute_floor_ms for row in rows], RECOMPUTE, ":"),
        ("restore and a step", [row.restored_ms for row in rows], BLUE, "^-"),
        ("restore alone", [row.restore_ms for row in rows], BLUE, "--"),
        ("its floor: bytes ÷ copy rate", [row.restore_floor_ms for row in rows], BLUE, ":"),
    )
    for name, values, colour, style in lines:
        axes.plot(contexts, [float("nan") if value is None else value for value in values], style, color=colour, markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(contexts, [f"{context:,}" for context in contexts])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.set_xlabel("tokens of history")
    axes.set_ylabel("ms")
    figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure
