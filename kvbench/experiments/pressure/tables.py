"""The tables of experiment ``pressure``: tokens and latency, what the shortage took, where the stalls went, and the ways back."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.analysis.stalls import PARTS
from kvbench.drawing.layout import UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import decimal, times
from kvbench.experiments.pressure.crossover import CrossoverRow
from kvbench.experiments.pressure.metrics import PressureRow

MIB = 2**20


def latency(rows: Sequence[PressureRow], style: Style) -> str:
    """What each arm gave, and how long requests waited."""
    base = rows[0].arm
    same = any(row.same_outputs is not None for row in rows)

    def cells(row: PressureRow, count: Count) -> list[str]:
        as_base = UNKNOWN if row.same_outputs is None else f"{row.same_outputs}/{row.compared_outputs}"
        ends = [f"{row.finished}/{row.requests}", *([as_base] if same else [])]
        latencies = [value for metric in (row.ttft_ms, row.tpot_ms, row.itl_ms) for value in (metric.p50, metric.p99)]
        return [row.arm, *ends, decimal(row.tokens_per_s), *(_short(value) for value in latencies)]

    names = [name for metric in ("TTFT", "TPOT", "ITL") for name in (f"{metric} p50", "p99")]
    header = ["arm", "done", *([f"as {base}"] if same else []), "tokens/s", *names]
    return fitting(header, 1, lambda count: [cells(row, count) for row in rows], style)


def shortage(rows: Sequence[PressureRow], style: Style) -> str:
    """What ran short, and what was done again."""

    def cells(row: PressureRow, count: Count) -> list[str]:
        longest = None if row.stalls.longest is None else row.stalls.longest.total_ms
        wasted = UNKNOWN if row.wasted is None else f"{row.wasted * 100:.1f} %"
        swapped = [UNKNOWN if size is None else f"{size / MIB:.1f}" for size in (row.swapped_out_bytes, row.swapped_in_bytes)]
        counts = [count(row.pool_tokens), count(row.peak_running), count(row.preemptions), count(row.rebuilt_tokens)]
        return [row.arm, *counts, wasted, *swapped, count(row.swap_full), "0" if row.preemptions == 0 else count(longest)]

    header = ["arm", "pool", "at once", "preempted", "recomputed", "wasted", "MiB out", "in", "full", "longest ms"]
    return fitting(header, 1, lambda count: [cells(row, count) for row in rows], style)


def stalls(rows: Sequence[PressureRow], style: Style) -> str:
    """Of each arm the sum of all its stalls, their median part by part, and the longest."""

    def cells(count: Count) -> list[list[str]]:
        return [
            [row.arm, name, count(row.stalls.count), decimal(split.total_ms), *(decimal(getattr(split, part)) for part in PARTS)]
            for row in rows
            for name, split in (("sum", row.stalls.sum), ("median", row.stalls.median), ("longest", row.stalls.longest))
            if split is not None
        ]

    return fitting(["arm", "stalls", "n", "total", "waiting", "restoring", "recomputing", "first step"], 2, cells, style)


def back(rows: Sequence[CrossoverRow], style: Style) -> str:
    """Recompute against restore, a row a length of history."""

    def cells(row: CrossoverRow, count: Count) -> list[str]:
        recompute = [_ms(row.recompute_ms), _ms(row.recompute_floor_ms)]
        restore = [_ms(row.restore_ms), _ms(row.restore_floor_ms), _ms(row.step_ms), _ms(row.swap_out_ms)]
        return [count(row.context), count(row.repeats), *recompute, *restore, times(row.ratio)]

    header = ["history", "n", "recompute", "floor", "restore", "floor", "+ step", "copy out", "ratio"]
    ordered = sorted(rows, key=lambda row: row.context)
    return fitting(header, 0, lambda count: [cells(row, count) for row in ordered], style)


def _ms(value: float | None) -> str:
    """Three digits that count."""
    return UNKNOWN if value is None else f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def _short(value: float | None) -> str:
    """Milliseconds; of long ones the fraction says nothing."""
    return decimal(value) if value is None or value < 1000 else f"{value:.0f}"
