"""What only the report of several runs has: one table of all of them, and in which options they differ."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.pass_rows import PassRow
from kvbench.drawing.layout import UNKNOWN, Cell, Style, table
from kvbench.drawing.numbers import decimal, per_cent, times
from kvbench.runs.sweep_folder import shown
from kvbench.summary.side_by_side import MARKS, OneRun, SideBySide

SPEEDUP = "speedup"


def beside(side: SideBySide, style: Style) -> str:
    """A row a run, arm and pass; the speedup is over the baseline arm of the same run; ``hits``: share of prompt tokens found in a tier.

    A run that has not been measured has a row too, in which nothing is known.
    """
    rows = [row for _, summary in side.measured for row in summary.passes]
    intervals = "95 %" if any(row.speedup.p50_interval for row in rows) else None
    seconds = "pass s" if any(row.pass_s is not None for row in rows) else None
    hits = "hits" if any(hit_rate(row) is not None for row in rows) else None
    header = [side.heading, "arm", "pass", "n", "TTFT p50", "mean", over(side), intervals, seconds, hits]

    def cells(run: OneRun, row: PassRow) -> list[Cell]:
        ttft: list[Cell] = [row.ttft_ms.n or row.answered, decimal(row.ttft_ms.p50), decimal(row.ttft_ms.mean)]
        speedup = [times(row.speedup.p50), _interval(row)]
        return [marked(run.label, run), row.arm, row.pass_label, *ttft, *speedup, decimal(row.pass_s), per_cent(hit_rate(row), 0)]

    lines: list[list[Cell]] = []
    for run in side.runs:
        passes = () if run.summary is None else run.summary.passes
        lines += [cells(run, row) for row in passes] or [[run.label, *[None] * (len(header) - 1)]]
    return table(header, 3, lines, style)


def marked(label: str, run: OneRun) -> str:
    """The label of a run, and its mark."""
    return f"{label} {run.mark}".rstrip()


def notes(side: SideBySide, full: bool = False) -> Iterator[str]:
    """What the marks mean, the notes of the runs unless each has its report (``full``), and those on all of them together."""
    marks = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if any(run.mark == mark for run in side.runs)]
    if marks:
        yield f"{', '.join(marks)}; what follows says why"
    yield from () if full else side.run_notes
    yield from side.notes


def joint_tables(side: SideBySide, style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables of rows that the runs of one experiment have."""
    return (drawn for reading in side.readings for drawn in reading.joint_tables(side.rows, style))


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
