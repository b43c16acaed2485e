"""Plots, as SVG text: the same bytes for the same figures. Whoever draws one imports matplotlib when it draws, and not before."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREY, BLUE = "#8a8a8a", "#0b6bcb"
"""They differ in lightness too, so that they can be told apart without colours."""

ARMS = (GREY, BLUE, "#c2611f", "#2b8050", "#9a5cc6", "#b5495b")
"""Colours of arms, the baseline first; each stands out from white and from near black."""

WIDTH = 7.4
"""Inches."""

STYLE: Any = {
    "svg.hashsalt": "kvbench",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: its name as a file, what it shows, the same in words with its main figures, and its SVG element."""

    name: str
    title: str
    description: str
    element: str


def svg(figure: Figure) -> str:
    """The figure as SVG text, without the time at which it was drawn."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
