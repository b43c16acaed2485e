"""The table of recompute against restore, a row a length of history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvbench.drawing.layout import UNKNOWN, Count, Style, fitting
from kvbench.drawing.numbers import times
from kvbench.experiments.pressure.crossover import CrossoverRow


def tables(rows: Sequence[CrossoverRow], style: Style) -> Iterator[tuple[str, str]]:
    """Heading and table; none without rows."""
    if not rows:
        return
    over = f"; {rows[0].link}" if rows[0].link is not None else ""
    yield f"Recompute against restore (ms to the next token{over})", _table(rows, style)


def _table(rows: Sequence[CrossoverRow], style: Style) -> str:
    def cells(row: CrossoverRow, count: Count) -> list[str]:
        recompute = [_ms(row.recompute_ms), _ms(row.recompute_floor_ms)]
        restore = [_ms(row.restore_ms), _ms(row.restore_floor_ms), _ms(row.step_ms), _ms(row.swap_out_ms)]
        return [count(row.context), count(row.repeats), *recompute, *restore, UNKNOWN if row.ratio is None else times(row.ratio)]

    header = ["history", "n", "recompute", "floor", "restore", "floor", "+ step", "copy out", "ratio"]
    ordered = sorted(rows, key=lambda row: row.context)
    return fitting(header, 0, lambda count: [cells(row, count) for row in ordered], style)


def _ms(value: float | None) -> str:
    """Three digits that count."""
    return UNKNOWN if value is None else f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"
