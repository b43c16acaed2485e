"""What a report format is: a name, and how one run and several are rendered. A module each, with a ``FORMAT``.

Modules of this room are imported for help: what needs pandas, jinja2 or matplotlib is imported when something is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kvbench.registry.registry import Registry

if TYPE_CHECKING:
    from kvbench.analysis.run_view import RunView
    from kvbench.drawing.plots import Plot
    from kvbench.summary.side_by_side import SideBySide
    from kvbench.summary.summary import Summary


@dataclass(frozen=True)
class RunReport:
    """One run: its summary, of which every format is a function, and the run itself, for plots and for where it comes from."""

    summary: Summary
    view: RunView

    @cached_property
    def plots(self) -> tuple[Plot, ...]:
        """Its plots, drawn when they are first asked for."""
        from kvbench.reports.run_plots import run_plots  # late: matplotlib

        return run_plots(self.summary, self.view)


@dataclass(frozen=True)
class RunsReport:
    """Several runs side by side. ``full``: each one's whole report is wanted, instead of its table."""

    side: SideBySide
    full: bool = False

    @cached_property
    def plots(self) -> tuple[Plot, ...]:
        """The plots of all together, drawn when they are first asked for."""
        from kvbench.reports.curve import curve  # late: matplotlib

        return (*(plot for reading in self.side.readings for plot in reading.joint_plots(self.side.rows)), *curve(self.side))


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """What a file of this room has as ``FORMAT``.

    Attributes:
        name: the word behind ``--format``.
        about: what help says of it in brackets; empty where the name says all.
        order: where it stands among the others in lists.
        render: the report of one run.
        render_several: the report of several.
        is_page: there is room: each repeat is shown, and each request where there are not too many.
        has_one_kind_of_line: documents and repeats cannot both be shown.
        warns: its readers are programs, which take every line alike: what speaks against a run is said on stderr too.
    """

    name: str
    about: str
    order: int
    render: Callable[[RunReport], str]
    render_several: Callable[[RunsReport], str]
    is_page: bool = False
    has_one_kind_of_line: bool = False
    warns: bool = False


FORMATS: Registry[ReportFormat] = Registry("kvbench.reports.formats", "FORMAT")


def formats() -> Mapping[str, ReportFormat]:
    """Every format by its name, in their order."""
    return {item.name: item for item in sorted(FORMATS.all().values(), key=lambda item: item.order)}
