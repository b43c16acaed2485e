"""How an experiment's runs are read: its rows, checks, notes, sentences, limits, tables and plots.

A room has a module ``reading`` with an object ``READING``. Summary and reports ask it, and know no experiment by its name. Everything has
a default that says nothing, so a reading overrides only what its experiment has. Texts are whole sentences, as notes and reasons are
listed one by one. What draws with matplotlib imports it when it draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from kvbench.analysis.known_noise import KnownNoise
    from kvbench.analysis.pass_rows import PassRow
    from kvbench.analysis.run_info import RunInfo
    from kvbench.analysis.run_view import Rows, RunView
    from kvbench.analysis.speedup import FirstRead
    from kvbench.drawing.layout import Style
    from kvbench.drawing.plots import Plot
    from kvbench.experiments.verdict import ArmVerdict


class Reading:
    """How runs of one experiment are read.

    Attributes:
        keys: of its rows in a summary's JSON, the main one first.
        row_types: what a row of each key is, for the schema of that JSON.
        judges_tiers: its arms are tiers: reports have the table by pass, sources, loads, first reads and speedups.
        first_judged: index of the first pass in which a tier can hit.
        prompts_share: a prompt may begin as an earlier one of the same pass did, so that a hit in the first pass is no fault.
        shows_timelines: timelines are drawn also where nothing was preempted.
        plots_first: its plots stand before those that every run has.
        checked: the fields of a request line that ``reasons`` reads beside those that the checks of every run read; ``None``: any of them.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    row_types: ClassVar[Mapping[str, type]] = {}
    judges_tiers: ClassVar[bool] = False
    first_judged: ClassVar[int] = 1
    prompts_share: ClassVar[bool] = False
    shows_timelines: ClassVar[bool] = False
    plots_first: ClassVar[bool] = False
    checked: ClassVar[tuple[str, ...] | None] = None

    def rows(self, view: RunView) -> Rows:
        """Its rows (dataclasses) by key; asked for once a run, then found in ``view.rows``."""
        return {}

    def title(self, view: RunView) -> Iterable[str]:
        """Its part of the title: what was asked for, between the model and the size of the pool."""
        return ()

    def requests_of_repeat(self, info: RunInfo) -> int | None:
        """Requests that an arm answers in one repeat, over all passes; ``None``: unknown."""
        passes = info.workload.get("passes", info.config.get("passes"))
        return None if info.requests_per_pass is None or passes is None else int(info.requests_per_pass) * len(passes)

    def takes_rate(self, info: RunInfo) -> bool:
        """Whether ``--rate`` would send the requests of this run one after the other."""
        return False

    def reasons(self, view: RunView) -> Iterable[str]:
        """Why not to trust the run."""
        return ()

    def setup_notes(self, view: RunView) -> Iterable[str]:
        """What this setup cannot show."""
        return ()

    def notes(self, view: RunView) -> Iterable[str]:
        """What a reader must know of what was measured, and what is no fault."""
        return ()

    def noises(self, view: RunView) -> Iterable[KnownNoise]:
        """How much the same work differed within the run; the largest is the margin of what is said of its times."""
        return ()

    def verdicts(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterable[ArmVerdict]:
        """The verdict on each arm beside the reference; arguments as for :meth:`sentences`."""
        return ()

    def sentences(self, view: RunView, passes: Sequence[PassRow], first_reads: Sequence[FirstRead]) -> Iterable[str]:
        """What the tables say, for people.

        Args:
            passes, first_reads: empty unless its arms are tiers.
        """
        return ()

    def conditions(self, view: RunView) -> Iterable[str]:
        """Sentences behind those: under which conditions all of that holds."""
        if view.info.link is not None:
            yield f"All of this is over a {view.info.link}."

    def limits(self, view: RunView) -> Iterable[str]:
        """What a run of this workload does not show: phrases that continue "This run does not show"."""
        return ()

    def tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """Headings and tables of its rows, the main one first."""
        return iter(())

    def csv_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """A line for each of its main rows, a value a column; none: a line a pass."""
        return [asdict(row) for key in self.keys[:1] for row in rows.get(key, ())]

    def plots(self, view: RunView) -> Iterable[Plot]:
        """Plots that only its runs have."""
        return ()

    def joint_tables(self, rows: Rows, style: Style) -> Iterator[tuple[str, str]]:
        """Headings and tables over several runs.

        Args:
            rows: those of all runs, by key.
        """
        return iter(())

    def joint_sentences(self, rows: Rows) -> Iterable[str]:
        """What these tables say."""
        return ()

    def joint_plots(self, rows: Rows) -> Iterable[Plot]:
        """Plots over several runs."""
        return ()

    def joint_json(self, rows: Rows) -> dict[str, Any]:
        """Further keys in the JSON of several runs; there also without any rows."""
        return {}


def spliced(line: Mapping[str, Any], name: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The line with several columns where it had one."""
    return {new: item for old, value in line.items() for new, item in (columns if old == name else {old: value}).items()}
