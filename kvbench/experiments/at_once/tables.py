"""The tables of experiments in which requests are there at once: pressure, fragmentation and sharing."""

from __future__ import annotations

from collections.abc import Iterator

from kvbench.drawing.layout import Style
from kvbench.experiments.fragmentation import tables as fragmentation
from kvbench.experiments.pressure import crossover_tables as crossover
from kvbench.experiments.pressure import tables as pressure
from kvbench.experiments.sharing import tables as sharing
from kvbench.summary.summary import Summary


def batch_tables(summary: Summary, style: Style) -> Iterator[tuple[str, str]]:
    """Headings and tables, the main one first; none where the arms are tiers."""
    yield from crossover.tables(summary.crossover, style)
    yield from pressure.tables(summary.pressure, style)
    yield from fragmentation.tables(summary.fragmentation, style)
    yield from sharing.tables(summary.sharing, style)
