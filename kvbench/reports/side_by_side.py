"""Several runs beside each other: one table of all, then each run's own table under its name."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.pass_rows import PassRow
from kvbench.drawing.layout import MARKDOWN, TERMINAL, UNKNOWN, WIDTH, Count, Style, escaped, fitting, packed, wrapped
from kvbench.drawing.numbers import decimal, times
from kvbench.reports import markdown, tables, terminal
from kvbench.runs.sweep_folder import shown
from kvbench.summary.side_by_side import OneRun, SideBySide
from kvbench.summary.summary import Summary

SPEEDUP = "speedup"
NONE_SHOWS = "None of these runs shows:"


def to_terminal(side: SideBySide, full: bool) -> str:
    """For a terminal; ``full``: each run's whole report in place of its table."""
    return "\n\n".join(_terminal_sections(side, full)) + "\n"


def to_markdown(side: SideBySide, full: bool) -> str:
    """The same as Markdown."""
    return "\n\n".join(_markdown_sections(side, full)) + "\n"


def beside(side: SideBySide, style: Style) -> str:
    """A row a run, arm and pass; the speedup is over the baseline arm of the same run; ``hits``: share of prompt tokens found in a tier.

    A run that has not been measured has a row too, in which nothing is known.
    """
    rows = [row for _, summary in side.measured for row in summary.passes]
    intervals = any(row.speedup.p50_interval for row in rows)
    seconds, hits = any(row.pass_s is not None for row in rows), any(hit_rate(row) is not None for row in rows)
    header = [side.heading, "arm", "pass", "n", "TTFT p50", "mean", over(side)]
    header += [*(["95 %"] if intervals else []), *(["pass s"] if seconds else []), *(["hits"] if hits else [])]

    def cells(run: OneRun, row: PassRow, count: Count) -> list[str]:
        ttft = row.ttft_ms
        first = [run.label, row.arm, row.pass_label, count(ttft.n or row.answered), decimal(ttft.p50), decimal(ttft.mean)]
        interval, took = [_interval(row)] if intervals else [], [decimal(row.pass_s)] if seconds else []
        return [*first, tables.speedup_of(row), *interval, *took, *([_share(hit_rate(row))] if hits else [])]

    def lines(count: Count) -> list[list[str]]:
        found: list[list[str]] = []
        for run in side.runs:
            passes = () if run.summary is None else run.summary.passes
            found += [cells(run, row, count) for row in passes] or [[run.label, *[UNKNOWN] * (len(header) - 1)]]
        return found

    return fitting(header, 3, lines, style)


def own_tables(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """What stands under a run's name, as headings (empty for the main table) and tables: also by repeat and by document, where asked."""
    if summary.passes:
        yield "", tables.by_pass(summary, style)
    yield from summary.reading.tables(summary.rows, style)
    if summary.repeats:
        yield "By repeat (TTFT in ms)", tables.by_repeat(summary.repeats, style)
    if summary.documents:
        yield "By document (TTFT: median over repeats)", tables.by_document(summary.documents, style)


def joint_tables(side: SideBySide, style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables of rows that the runs of one experiment have."""
    return (table for reading in side.readings for table in reading.joint_tables(side.rows, style))


def joint_sentences(side: SideBySide) -> Iterator[str]:
    """What these tables say."""
    return (sentence for reading in side.readings for sentence in reading.joint_sentences(side.rows))


def over(side: SideBySide) -> str:
    """The heading of the speedup: what it is over."""
    baselines = {summary.baseline for _, summary in side.measured}
    return f"vs {baselines.pop()}" if len(baselines) == 1 else SPEEDUP


def hit_rate(row: PassRow) -> float | None:
    """Share of a pass's prompt tokens that some tier held; ``None`` where any part is unknown."""
    rates = [row.device_hit_rate, *([row.host_hit_rate] if row.tier else [])]
    return None if None in rates else sum(rate for rate in rates if rate is not None)


def told(side: SideBySide) -> Iterator[str]:
    """The runs that did not come to their end, and why."""
    for run in side.runs:
        if run.missing is not None:
            yield f"{side.titled(run)}: {run.missing}"


def differences(side: SideBySide) -> list[tuple[str, str]]:
    """The label of each run and its options, where they differ in several; else the labels say it themselves."""
    if side.key is not None:
        return []
    return [
        (run.label, ", ".join(f"{name.replace('_', '-')}={shown(value)}" for name, value in run.options.items()))
        for run in side.runs
        if run.options
    ]


def _terminal_sections(side: SideBySide, full: bool) -> Iterator[str]:
    if any(summary.passes for _, summary in side.measured):
        yield f"Side by side (TTFT in ms; speedup over the same run's baseline)\n{beside(side, TERMINAL)}"
    if lines := [wrapped(f"{label}: {options}", indent="  ") for label, options in differences(side)]:
        yield "\n".join(lines)
    yield from (f"{heading}\n{table}" for heading, table in joint_tables(side, TERMINAL))
    if sentences := [wrapped(sentence) for sentence in joint_sentences(side)]:
        yield "\n".join(sentences)
    if missing := list(told(side)):
        yield "\n".join(wrapped(line) for line in missing)
    for run, summary in side.measured:
        yield f"{side.titled(run)}\n{'-' * min(len(side.titled(run)), WIDTH)}"
        if full:
            yield terminal.render(summary).rstrip("\n")
            continue
        title = "\n".join(packed(summary.title))
        if not summary.passes:
            yield title
        yield from (f"{heading or title}\n{table}" for heading, table in own_tables(summary, TERMINAL))
        yield f"{summary.source}: {summary.path}"
    if side.notes:
        yield "\n".join(wrapped(note, "note: ") for note in side.notes)
    if side.reasons:
        yield "\n".join(["Measured, and not to be trusted:", *(wrapped(reason, "- ") for reason in side.reasons)])
    if side.limits:
        yield "\n".join([NONE_SHOWS, *(wrapped(limit, "- ") for limit in side.limits)])


def _markdown_sections(side: SideBySide, full: bool) -> Iterator[str]:
    if any(summary.passes for _, summary in side.measured):
        yield "Side by side (TTFT in ms; speedup over the same run's baseline)"
        yield beside(side, MARKDOWN)
    if lines := [f"- {escaped(f'{label}: {options}')}" for label, options in differences(side)]:
        yield "\n".join(lines)
    for heading, table in joint_tables(side, MARKDOWN):
        yield escaped(heading)
        yield table
    yield from map(escaped, joint_sentences(side))
    if missing := list(told(side)):
        yield "\n".join(f"- {escaped(line)}" for line in missing)
    for run, summary in side.measured:
        yield f"### {escaped(side.titled(run))}"
        if full:
            yield markdown.render(summary).rstrip("\n")
            continue
        yield escaped(" · ".join(summary.title))
        for heading, table in own_tables(summary, MARKDOWN):
            yield from (escaped(heading), table) if heading else (table,)
        yield f"{summary.source}: `{summary.path}`"
    if side.notes:
        yield "\n".join(f"- note: {escaped(note)}" for note in side.notes)
    if side.reasons:
        yield "**Measured, and not to be trusted:**"
        yield "\n".join(f"- {escaped(reason)}" for reason in side.reasons)
    if side.limits:
        yield NONE_SHOWS
        yield "\n".join(f"- {escaped(limit)}" for limit in side.limits)


def _interval(row: PassRow) -> str:
    if row.speedup.p50_interval is None:
        return UNKNOWN
    return "–".join(times(end).removesuffix("x") for end in row.speedup.p50_interval)


def _share(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{rate * 100:.0f} %"
