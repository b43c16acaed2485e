"""The table of controls: arms where no tier can help, and whether they were faster all the same."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drawing.layout import NO_TIER, UNKNOWN, Count, Style, fitting
from kvbench.summary.controls import ControlRow
from kvbench.summary.summary import Summary


def controls_table(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Heading and table, if the run has controls: a row an arm beside the baseline."""
    if not summary.controls.rows:
        return

    def cells(row: ControlRow, count: Count) -> list[str]:
        tier = NO_TIER if row.arm == "none" else count(row.host)
        times = [UNKNOWN if time is None else f"{time:.1f}" for time in (row.baseline_ms, row.p50_ms)]
        return [row.control, row.arm, count(row.n), *times, _share(row.gain), _share(row.noise).lstrip("+"), tier, row.verdict]

    header = ["control", "arm", "n", f"{summary.baseline} p50", "p50", "gain", "noise", "host", "verdict"]
    table = fitting(header, 2, lambda count: [cells(row, count) for row in summary.controls.rows], style)
    yield "Controls, where no tier can help (TTFT of the second pass)", table


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value * 100 + 0.0:+.1f} %".replace("-", "−")
