"""The report for a terminal: plain text, 80 columns, no colour needed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kvbench.analysis.summary import Summary
from kvbench.reports import tables

_STYLE = tables.Style(box=None, sides=False, paddings=((0, 2, 0, 0), (0, 1, 0, 0)))


def render(summary: Summary) -> str:
    """The whole report: title, table by pass, by source, loads, documents, sentences, notes, reasons, path."""
    return "\n\n".join(_sections(summary)) + "\n"


def _sections(summary: Summary) -> Iterator[str]:
    title = "\n".join(_packed(summary.title))
    yield f"{title}\n{tables.by_pass(summary, _STYLE)}" if summary.passes else title
    if summary.sources:
        yield "By source (tokens: median of a request)\n" + tables.by_source(summary, _STYLE)
    if summary.loads:
        yield "\n".join(_wrapped(line) for line in tables.load_lines(summary.loads))
    if summary.prediction:
        yield _wrapped(tables.prediction_line(summary.prediction))
    if summary.documents:
        yield "By document (TTFT: median over repeats)\n" + tables.by_document(summary.documents, _STYLE)
    if summary.sentences:
        yield "\n".join(_wrapped(sentence) for sentence in summary.sentences)
    if summary.notes:
        yield "\n".join(_wrapped(note, "note: ") for note in summary.notes)
    if summary.reasons:
        yield "\n".join(["Measured, and not to be trusted:", *(_wrapped(reason, "- ") for reason in summary.reasons)])
    yield f"Run folder: {summary.path}"


def _packed(parts: tuple[str, ...]) -> list[str]:
    """As many parts a line as fit; a part is never broken."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= tables.WIDTH:
            lines[-1] += f" | {part}"
        else:
            lines.append(part)
    return lines


def _wrapped(text: str, first: str = "") -> str:
    """The text in lines of at most 80 columns, the later ones indented under ``first``; a number stays with its per cent sign."""
    filled = textwrap.fill(
        text.replace(" %", "\u00a0%"),
        tables.WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace("\u00a0", " ")
