"""Several runs beside each other: one table of all, then each run's own table under its name."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.pass_rows import PassRow
from kvbench.drawing.layout import UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import decimal, times
from kvbench.reports import tables
from kvbench.reports.sections import UNTRUSTED, Kind, Section, sections, source, tables_of
from kvbench.runs.sweep_folder import shown
from kvbench.summary.side_by_side import OneRun, SideBySide
from kvbench.summary.summary import Summary

SPEEDUP = "speedup"


def sections_of_several(side: SideBySide, style: Style, full: bool) -> Iterator[Section]:
    """The sections of the whole report; ``full``: each run's whole report in place of its table."""
    if any(summary.passes for _, summary in side.measured):
        yield Section(Kind.TABLE, "Side by side (TTFT in ms; speedup over the same run's baseline)", table=beside(side, style))
    if options := tuple(f"{label}: {options}" for label, options in differences(side)):
        yield Section(Kind.OPTIONS, lines=options)
    yield from tables_of(joint_tables(side, style))
    if sentences := tuple(joint_sentences(side)):
        yield Section(Kind.SENTENCES, lines=sentences)
    if missing := tuple(told(side)):
        yield Section(Kind.MISSING, lines=missing)
    for run, summary in side.measured:
        yield Section(Kind.RUN, side.titled(run))
        yield from sections(summary, style) if full else own_sections(summary, style)
    if side.notes:
        yield Section(Kind.NOTES, lines=side.notes)
    if side.reasons:
        yield Section(Kind.REASONS, UNTRUSTED, side.reasons)
    if side.limits:
        yield Section(Kind.LIMITS, "None of these runs shows", side.limits)


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


def own_sections(summary: Summary, style: Style) -> Iterator[Section]:
    """What stands under a run's name: its title with the main table, then the others, also by repeat and by document, where asked."""
    yield Section(Kind.RUN_TITLE, lines=summary.title, table=tables.by_pass(summary, style) if summary.passes else "")
    yield from tables_of(summary.reading.tables(summary.rows, style))
    if summary.repeats:
        yield Section(Kind.TABLE, "By repeat (TTFT in ms)", table=tables.by_repeat(summary.repeats, style))
    if summary.documents:
        yield Section(Kind.TABLE, "By document (TTFT: median over repeats)", table=tables.by_document(summary.documents, style))
    yield source(summary)


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


def _interval(row: PassRow) -> str:
    if row.speedup.p50_interval is None:
        return UNKNOWN
    return "–".join(times(end).removesuffix("x") for end in row.speedup.p50_interval)


def _share(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{rate * 100:.0f} %"
