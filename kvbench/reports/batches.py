"""The tables of experiments in which requests are there at once: pressure, fragmentation and sharing."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.analysis.summary import Summary
from kvbench.reports import crossover, fragmentation, pressure, sharing
from kvbench.reports.layout import Style


def batch_tables(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables, the main one first; none where the arms are tiers."""
    yield from crossover.tables(summary.crossover, style)
    yield from pressure.tables(summary.pressure, style)
    yield from fragmentation.tables(summary.fragmentation, style)
    yield from sharing.tables(summary.sharing, style)
