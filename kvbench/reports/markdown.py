"""The report as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import MARKDOWN

from kvbench.analysis.summary import Summary
from kvbench.reports import tables

_STYLE = tables.Style(box=MARKDOWN, sides=True, paddings=((0, 1, 0, 1), (0, 0, 0, 0)))


def render(summary: Summary) -> str:
    """The same report as the terminal's, its tables as Markdown tables."""
    return "\n\n".join(_sections(summary)) + "\n"


def _sections(summary: Summary) -> Iterator[str]:
    yield f"**{' · '.join(summary.title)}**"
    if summary.passes:
        yield tables.by_pass(summary, _STYLE)
    if summary.sources:
        yield "By source (tokens: median of a request)"
        yield tables.by_source(summary, _STYLE)
    yield from tables.load_lines(summary.loads)
    if summary.prediction:
        yield tables.prediction_line(summary.prediction)
    if summary.documents:
        yield "By document (TTFT: median over repeats)"
        yield tables.by_document(summary.documents, _STYLE)
    yield from summary.sentences
    if summary.notes:
        yield "\n".join(f"- note: {note}" for note in summary.notes)
    if summary.reasons:
        yield "**Measured, and not to be trusted:**"
        yield "\n".join(f"- {reason}" for reason in summary.reasons)
    yield f"Run folder: `{summary.path}`"
