"""The report as Markdown, for an issue, a pull request or a page."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drawing.layout import MARKDOWN, escaped
from kvbench.reports import tables
from kvbench.reports.controls import controls_table
from kvbench.summary.summary import Summary


def render(summary: Summary) -> str:
    """The same report as the terminal's, its tables as Markdown tables."""
    return "\n\n".join(_sections(summary)) + "\n"


def _sections(summary: Summary) -> Iterator[str]:
    yield f"**{escaped(' · '.join(summary.title))}**"
    if summary.passes:
        yield tables.by_pass(summary, MARKDOWN)
    for heading, table in summary.reading.tables(summary.rows, MARKDOWN):
        yield escaped(heading)
        yield table
    if summary.scheduled:
        yield "From the scheduled time (TTFT with the wait before sending)"
        yield tables.by_schedule(summary.scheduled, MARKDOWN)
    if summary.sources:
        yield "By source (tokens: median of a request)"
        yield tables.by_source(summary, MARKDOWN)
    yield from map(escaped, (*tables.load_lines(summary.loads), *tables.stall_lines(summary.stalls)))
    if summary.prediction:
        yield escaped(tables.prediction_line(summary.prediction))
    for heading, table in tables.sides(summary, MARKDOWN):
        yield escaped(heading)
        yield table
    for heading, table in controls_table(summary, MARKDOWN):
        yield escaped(heading)
        yield table
    if line := tables.rates_line(summary):
        yield escaped(line)
    if summary.repeats:
        yield "By repeat (TTFT in ms)"
        yield tables.by_repeat(summary.repeats, MARKDOWN)
    for heading, table in tables.documents_table(summary, MARKDOWN):
        yield escaped(heading)
        yield table
    yield from map(escaped, summary.sentences)
    if summary.notes:
        yield "\n".join(f"- note: {escaped(note)}" for note in summary.notes)
    if summary.reasons:
        yield "**Measured, and not to be trusted:**"
        yield "\n".join(f"- {escaped(reason)}" for reason in summary.reasons)
    if summary.limits:
        yield "This run does not show:"
        yield "\n".join(f"- {escaped(limit)}" for limit in summary.limits)
    yield f"{summary.source}: `{summary.path}`"
