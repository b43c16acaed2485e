"""How a run of ``pressure`` is read; with ``--context``, recompute against restore too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from kvbench.analysis.pass_rows import PassRow
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import Rows, RunView
from kvbench.analysis.speedup import FirstRead
from kvbench.drawing.layout import Style
from kvbench.drawing.plots import Plot
from kvbench.experiments.at_once.reading import AtOnceReading
from kvbench.experiments.pressure import checks, crossover, crossover_tables, metrics, sentences, tables
from kvbench.experiments.reading import spliced


class PressureReading(AtOnceReading):
    """What the shortage cost each arm."""

    keys = ("pressure", "crossover")
    row_types: ClassVar[Mapping[str, type]] = {"pressure": metrics.PressureRow, "crossover": crossover.CrossoverRow}
    shows_timelines = True

    def rows(self, view: RunView) -> Rows:
        """A row an arm; and one of recompute against restore, if the run has a history."""
        return {"pressure": metrics.rows(view), "crossover": crossover.rows(view)}

    def title(self, view: RunView) -> Iterator[str]:
        """The requests, and their history."""
        yield from super().title(view)
        if (context := view.info.config.get("context")) is not None:
            yield f"history of {context:,}"

    def takes_rate(self, info: RunInfo) -> bool:
        """Two requests that are arranged have no rate."""
        return "context" not in info.config

    def reasons(self, view: RunView) -> Iterator[str]:
        """Of :mod:`kvbench.experiments.pressure.checks`."""
        return checks.reasons(view)

    def notes(self, view: RunView) -> Iterator[str]:
        """Of the same."""
        return checks.notes(view)

    def unsteady(self, view: RunView, first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """Where an arm was faster than the one in which nothing runs short."""
        return sentences.unsteady(view.rows["pressure"])

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterator[str]:
        """What the shortage cost; of a run with a history, which way back was faster."""
        back = view.rows["crossover"]
        return crossover.read(back) if back else sentences.read(view.rows["pressure"], view.info)

    def conditions(self, view: RunView) -> Iterable[str]:
        """The sentences on a history name the link themselves."""
        return () if view.rows["crossover"] else super().conditions(view)

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """The history's first."""
        yield from crossover_tables.tables(rows["crossover"], style)
        yield from tables.tables(rows["pressure"], style)

    def csv_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """A line an arm, or one of the history."""
        return [_line(row) for row in rows["crossover"] or rows["pressure"]]

    def joint_tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """A row a history."""
        return crossover_tables.tables(rows["crossover"], style)

    def joint_sentences(self, rows: Rows) -> Iterator[str]:
        """From which history on which way is faster."""
        return crossover.read(rows["crossover"])

    def joint_plots(self, rows: Rows) -> tuple[Plot, ...]:
        """Both ways over the history."""
        from kvbench.experiments.pressure.crossover_plot import crossover_plots  # late: matplotlib

        return crossover_plots(rows["crossover"])

    def joint_json(self, rows: Rows) -> dict[str, Any]:
        """Histories at which both ways take as long."""
        return {"crossings": crossover.crossings(rows["crossover"])}


def _line(row: metrics.PressureRow | crossover.CrossoverRow) -> dict[str, Any]:
    """One level of columns: ``stalls`` is their number, ``stall_sum_total_ms`` and so on their times."""
    line = asdict(row)
    if "stalls" not in line:
        return line
    times = line["stalls"]
    count = times.pop("count")
    columns = {f"stall_{kind}_{part}": ms for kind, parts in times.items() for part, ms in (parts or {}).items()}
    return spliced(line, "stalls", {"stalls": count, **columns})


READING = PressureReading()
