"""Plots, as SVG text: the same bytes for the same figures. Whoever draws one imports matplotlib when it draws, and not before.

They are readable on light and dark: matplotlib's text and lines take the colour of what is around them. In a page that is the page's own; a
file has a background of its own, light or dark as the reader's system is.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from kvbench.drawing.clean import one_line

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

INK, FAINT = "#010203", "#010204"
"""Drawn in these colours, text and grid take the reader's; nothing else is drawn in them."""

THEME: Any = STYLE | {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.parse_math": False,  # names of documents may hold $
}

_FILE_STYLE = (
    "<style>svg { color: #1b1f24; background: #ffffff } "
    "@media (prefers-color-scheme: dark) { svg { color: #e3e6ea; background: #14171b } }</style>"
)


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


@contextmanager
def theme() -> Iterator[None]:
    """Within it figures are drawn so."""
    import matplotlib as mpl

    with mpl.rc_context(THEME), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)  # a browser has other fonts
        yield


def drawn(name: str, title: str, description: str, figure: Figure) -> Plot:
    """The plot of a figure, with its title on it."""
    name = re.sub(r"[^\w.+-]", "_", name)  # it names a file, and elements of the page
    figure.suptitle(one_line(title), fontsize=10, x=0.01, ha="left")
    return Plot(name, title, description, inline(svg(figure), name, title, description))


def inline(text: str, name: str, title: str, description: str) -> str:
    """The SVG element for a page: named for screen readers, its ids its own, without what only a file needs."""

    def own(tag: re.Match[str]) -> str:
        text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", tag[0])
        return text.replace(FAINT, "currentColor; stroke-opacity: 0.15").replace(INK, "currentColor")

    element = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    element = re.sub(r"<[^>]+>", own, element)
    told = f'<title id="{name}-title">{escape(one_line(title))}</title><desc id="{name}-desc">{escape(one_line(description))}</desc>'
    head, rest = element.split(">", 1)
    return f'{head} role="img" aria-labelledby="{name}-title {name}-desc">{told}{rest}'


def standalone(element: str) -> str:
    """The same element as a file."""
    head, rest = element.split(">", 1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>{_FILE_STYLE}{rest}'
