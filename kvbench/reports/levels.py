"""Several levels of load beside each other: the same passes of the same arms."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.analysis.summary import PassRow, Summary
from kvbench.reports.layout import TERMINAL, Count, fitting
from kvbench.reports.tables import decimal, speedup_of


def by_level(levels: Sequence[tuple[int, Summary]]) -> str:
    """A row a level, arm and pass, for the terminal; the speedup is over the baseline arm of the same level."""
    baseline = levels[0][1].baseline

    def cells(level: int, row: PassRow, count: Count) -> list[str]:
        times = [decimal(row.ttft_ms.p50), decimal(row.ttft_ms.mean), speedup_of(row), decimal(row.pass_s)]
        return [str(level), row.arm, row.pass_label, count(row.ttft_ms.n), *times]

    header = ["concurrency", "arm", "pass", "n", "TTFT p50", "mean", f"vs {baseline}", "pass s"]
    return fitting(header, 3, lambda count: [cells(level, row, count) for level, summary in levels for row in summary.passes], TERMINAL)
