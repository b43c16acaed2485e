"""The picture of experiment ``fragmentation``: what the pool's slots were while the next request found no room, arm by arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from kvbench.drawing.plots import BLUE, GREY, WIDTH, Plot, drawn
from kvbench.experiments.fragmentation.metrics import FragmentationRow

PARTS = {
    "tokens": ("used", "#2b8050"),
    "kept for later": ("for_later", BLUE),
    "never used": ("never_used", "#c2611f"),
    "free, scattered": ("scattered", "#b5495b"),
    "free": ("free", GREY),
}
"""Names of the parts, in the order of the bars, with their fields and colours."""

ROW, AROUND = 0.34, 1.2
"""Inches."""

LEAST_LABEL = 5.0
"""Per cent from which a part has room for its number."""


def waste_plots(found: Sequence[FragmentationRow]) -> Iterator[Plot]:
    """A bar an arm; the parts of each sum to the pool. None where no request waited for room."""
    if not (rows := [row for row in found if row.shares is not None]):
        return
    figure = Figure(figsize=(WIDTH, AROUND + ROW * len(rows)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(rows))
    for name, (field, colour) in PARTS.items():
        parts = np.array([100 * getattr(row.shares, field) for row in rows])
        bars = axes.barh(np.arange(len(rows)), parts, left=left, height=0.72, color=colour, label=name)
        labels = [f"{part:.0f}" if part >= LEAST_LABEL else "" for part in parts]
        axes.bar_label(bars, labels, label_type="center", color="black" if colour == GREY else "white", fontsize=8)
        left += parts
    axes.set_yticks(np.arange(len(rows)), [row.arm for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the pool's slots, while the next request found no room")
    figure.legend(loc="outside lower center", ncols=len(PARTS), frameon=False)
    told = (
        f"{row.arm}: " + ", ".join(f"{100 * getattr(row.shares, field):.1f} % {name}" for name, (field, _) in PARTS.items()) for row in rows
    )
    yield drawn("waste", "What the slots of the pool were", "; ".join(told) + ".", figure)
