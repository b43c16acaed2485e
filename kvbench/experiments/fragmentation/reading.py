"""How a run of ``fragmentation`` is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.drawing.layout import Style
from kvbench.drawing.plots import Plot
from kvbench.experiments.at_once.reading import AtOnceReading
from kvbench.experiments.fragmentation import checks, metrics, sentences, tables
from kvbench.experiments.reading import spliced


class FragmentationReading(AtOnceReading):
    """What the slots of the pool were, and how many requests ran at once."""

    keys = ("fragmentation",)
    row_types: ClassVar[Mapping[str, type]] = {"fragmentation": metrics.FragmentationRow}
    plots_first = True

    def rows(self, view: RunView) -> Rows:
        """A row an arm."""
        return {"fragmentation": metrics.rows(view)}

    def title(self, view: RunView) -> Iterator[str]:
        """The requests, and how long they may be."""
        config, count = view.info.config, view.info.requests_per_pass
        if config.get("lengths") is not None:
            yield f"{'' if count is None else f'{count:,} '}requests of {Path(config['lengths']).name}"
        yield from super().title(view)
        if "max_length" in config:
            yield f"at most {config['max_length']:,}"

    def reasons(self, view: RunView) -> Iterator[str]:
        """Of :mod:`kvbench.experiments.fragmentation.checks`."""
        return checks.reasons(view)

    def notes(self, view: RunView) -> Iterator[str]:
        """Of the same."""
        return checks.notes(view)

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """What was wasted, and what paging gained."""
        return sentences.read(view.rows["fragmentation"], view.info)

    def limits(self, view: RunView) -> Iterator[str]:
        """Lengths that are nobody's."""
        if view.info.config.get("lengths") is None:
            yield "requests of your own lengths: these were drawn (--lengths FILE)"

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """What ran at once, and the slots."""
        return tables.tables(rows["fragmentation"], style)

    def csv_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """A line an arm, a column a share."""
        return [_line(row) for row in rows["fragmentation"]]

    def plots(self, view: RunView) -> Iterator[Plot]:
        """What the slots were."""
        from kvbench.experiments.fragmentation.plots import waste_plots  # late: matplotlib

        return waste_plots(view.rows["fragmentation"])


def _line(row: metrics.FragmentationRow) -> dict[str, Any]:
    shares = {f"share_{part.name}": None if row.shares is None else getattr(row.shares, part.name) for part in fields(metrics.Shares)}
    return spliced(asdict(row), "shares", shares)


READING = FragmentationReading()
