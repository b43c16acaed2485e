"""The tables of experiment ``pressure``: tokens and latency, what the shortage took, and where the stalls went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.analysis.stalls import PARTS, Split
from kvbench.analysis.statistics import P99_NEEDS
from kvbench.drawing.layout import UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import decimal
from kvbench.experiments.pressure.metrics import PressureRow

MIB = 2**20


def tables(rows: Sequence[PressureRow], style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables; the stalls only where a runner says what they were spent on."""
    if not rows:
        return
    yield f"Tokens and latency (ms; a p99 needs {P99_NEEDS} samples)", _latency(rows, style)
    yield "What the shortage took (counts: of one repeat)", _shortage(rows, style)
    if any(row.stalls.sum is not None and row.stalls.sum.waiting_ms is not None for row in rows):
        yield "Stalls, by what the time was spent on (ms)", _stalls(rows, style)


def _latency(rows: Sequence[PressureRow], style: Style) -> str:
    base = rows[0].arm
    same = any(row.same_outputs is not None for row in rows)

    def cells(row: PressureRow, count: Count) -> list[str]:
        ends = [f"{row.finished}/{row.requests}", *([_same(row)] if same else [])]
        times = [value for metric in (row.ttft_ms, row.tpot_ms, row.itl_ms) for value in (metric.p50, metric.p99)]
        return [row.arm, *ends, decimal(row.tokens_per_s), *(_short(value) for value in times)]

    names = [name for metric in ("TTFT", "TPOT", "ITL") for name in (f"{metric} p50", "p99")]
    header = ["arm", "done", *([f"as {base}"] if same else []), "tokens/s", *names]
    return fitting(header, 1, lambda count: [cells(row, count) for row in rows], style)


def _shortage(rows: Sequence[PressureRow], style: Style) -> str:
    def cells(row: PressureRow, count: Count) -> list[str]:
        longest = None if row.stalls.longest is None else row.stalls.longest.total_ms
        wasted = UNKNOWN if row.wasted is None else f"{row.wasted * 100:.1f} %"
        swapped = [UNKNOWN if size is None else f"{size / MIB:.1f}" for size in (row.swapped_out_bytes, row.swapped_in_bytes)]
        counts = [count(row.pool_tokens), count(row.peak_running), count(row.preemptions), count(row.rebuilt_tokens)]
        return [row.arm, *counts, wasted, *swapped, count(row.swap_full), "0" if row.preemptions == 0 else count(longest)]

    header = ["arm", "pool", "at once", "preempted", "rebuilt", "wasted", "MiB out", "in", "full", "longest ms"]
    return fitting(header, 1, lambda count: [cells(row, count) for row in rows], style)


def _stalls(rows: Sequence[PressureRow], style: Style) -> str:
    """Of each arm the sum of all its stalls, their median part by part, and the longest."""

    def cells(count: Count) -> list[list[str]]:
        return [
            [row.arm, name, count(row.stalls.count), *_parts(split)]
            for row in rows
            for name, split in (("sum", row.stalls.sum), ("median", row.stalls.median), ("longest", row.stalls.longest))
            if split is not None
        ]

    return fitting(["arm", "stalls", "n", "total", "waiting", "restoring", "recomputing", "first step"], 2, cells, style)


def _parts(split: Split) -> list[str]:
    return [decimal(split.total_ms), *(decimal(getattr(split, name)) for name in PARTS)]


def _same(row: PressureRow) -> str:
    return UNKNOWN if row.same_outputs is None else f"{row.same_outputs}/{row.compared_outputs}"


def _short(value: float | None) -> str:
    """Milliseconds; of long ones the fraction says nothing."""
    return decimal(value) if value is None or value < 1000 else f"{value:.0f}"
