"""The report for a terminal: plain text, 80 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drawing.layout import TERMINAL, packed, wrapped
from kvbench.reports import tables
from kvbench.reports.controls import controls_table
from kvbench.summary.summary import Summary


def render(summary: Summary) -> str:
    """The whole report: title, table by pass, by source, loads, documents, sentences, notes, reasons, limits, path."""
    return "\n\n".join(_sections(summary)) + "\n"


def _sections(summary: Summary) -> Iterator[str]:
    title = "\n".join(packed(summary.title))
    yield f"{title}\n{tables.by_pass(summary, TERMINAL)}" if summary.passes else title
    for heading, table in summary.reading.tables(summary.rows, TERMINAL):
        yield f"{heading}\n{table}"
    if summary.scheduled:
        yield "From the scheduled time (TTFT with the wait before sending)\n" + tables.by_schedule(summary.scheduled, TERMINAL)
    if summary.sources:
        yield "By source (tokens: median of a request)\n" + tables.by_source(summary, TERMINAL)
    if summary.loads:
        yield "\n".join(wrapped(line) for line in tables.load_lines(summary.loads))
    if summary.stalls:
        yield "\n".join(wrapped(line) for line in tables.stall_lines(summary.stalls))
    if summary.prediction:
        yield wrapped(tables.prediction_line(summary.prediction))
    for heading, table in tables.sides(summary, TERMINAL):
        yield f"{heading}\n{table}"
    for heading, table in controls_table(summary, TERMINAL):
        yield f"{heading}\n{table}"
    if line := tables.rates_line(summary):
        yield wrapped(line)
    if summary.repeats:
        yield "By repeat (TTFT in ms)\n" + tables.by_repeat(summary.repeats, TERMINAL)
    for heading, table in tables.documents_table(summary, TERMINAL):
        yield f"{heading}\n{table}"
    if summary.sentences:
        yield "\n".join(wrapped(sentence) for sentence in summary.sentences)
    if summary.notes:
        yield "\n".join(wrapped(note, "note: ") for note in summary.notes)
    if summary.reasons:
        yield "\n".join(["Measured, and not to be trusted:", *(wrapped(reason, "- ") for reason in summary.reasons)])
    if summary.limits:
        yield "\n".join(["This run does not show:", *(wrapped(limit, "- ") for limit in summary.limits)])
    yield f"{summary.source}: {summary.path}"
