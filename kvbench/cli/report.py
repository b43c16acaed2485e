"""``kvbench report``: show a run folder again, or several beside each other, in any format."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.analysis.logs.registry import tools_in_words
from kvbench.cli import output
from kvbench.cli.commands import AsJson, OutputFile, build_command, option
from kvbench.config.slo import Slo, parse_slo
from kvbench.errors import UsageError
from kvbench.reports.formats.format import RunReport, RunsReport, formats

if TYPE_CHECKING:
    from kvbench.runs.run_folder import Run

SHOWN_REQUESTS = 1000
"""Requests up to which a page shows every one of them without being asked."""


def _formats_in_words() -> str:
    *others, last = (f"{item.name} ({item.about})" if item.about else item.name for item in formats().values())
    return f"{', '.join(others)} or {last}"


def _known_format(name: str) -> str:
    """The name.

    Raises:
        typer.BadParameter: no format is called that.
    """
    if name not in formats():
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, formats()))}.")
    return name


def report(
    run_dirs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN_DIR...", show_default=False,
                       help="Run folder, as `kvbench run --out` makes it. Several, or the folder of a sweep: side by side."),
    ] = None,
    csv: Annotated[
        list[Path] | None,
        option("Your own log", "--csv", metavar="FILE",
               help=f"A log instead of a run folder: CSV, JSON lines, {tools_in_words()}. "
               "Repeatable: arms side by side, named by their files. [default: none]"),
    ] = None,
    map: Annotated[
        list[str] | None,
        option("Your own log", "--map", metavar="NAME=COLUMN",
               help="The log's columns: ttft with its unit (ttft=COLUMN:s), arm, pass, repeat, doc, error, success "
               "(true: it did not fail), prompt, device, host, computed. Dots reach into nested objects. Several by commas; "
               "repeatable. [default: columns of these names]"),
    ] = None,
    slo: Annotated[
        str | None,
        option("Output", "--slo", metavar="LIMITS",
               help="Goodput limits (ms): ttft=2000,tpot=50; also e2el, and ttft_p95 and so on, which are on all requests "
               "together. [default: the run's own]"),
    ] = None,
    format: Annotated[
        str,
        typer.Option("--format", metavar="NAME", show_default=False, rich_help_panel="Output", callback=_known_format,
                     help=f"{_formats_in_words()}. [default: terminal]"),  # annotations are read when the command is built
    ] = "terminal",
    file: OutputFile = None,
    as_json: AsJson = False,
    plots: Annotated[
        Path | None,
        option("Output", "--plots", metavar="DIR",
               help="Write the plots of html (SVG) into this folder too; of several runs, the curve. [default: none]"),
    ] = None,
    full: Annotated[
        bool, option("Output", "--full", help="Of several runs, show each one's whole report (terminal, markdown). [default: off]")
    ] = False,
    per_document: Annotated[
        bool,
        option("Output", "--per-document", help="Show every request of every pass; csv then has a line for each of them. [default: off]"),
    ] = False,
    per_repeat: Annotated[
        bool, option("Output", "--per-repeat", help="Show each repeat by itself; csv then has a line for each of them. [default: off]")
    ] = False,
) -> None:  # fmt: skip
    """Show a run again: terminal, markdown, html, csv or json.

    Reads interrupted runs too, and names what had to be skipped; several runs, or a sweep, side by side; and people's own logs (--csv).
    Always exits with 0 if it could be read; what speaks against trusting it stands in the report.
    """
    from kvbench.analysis.logs.columns import parse_map
    from kvbench.analysis.logs.logs import read_logs
    from kvbench.runs.run_folder import read_run
    from kvbench.runs.sweep_folder import is_sweep
    from kvbench.summary.side_by_side import side_by_side

    if not run_dirs and not csv:
        raise UsageError("Missing argument 'RUN_DIR': name a run folder, or a log (--csv FILE)")
    if run_dirs and csv:
        raise UsageError(f"{run_dirs[0]} and --csv {csv[0]}: a report shows either run folders or logs")
    if map and not csv:
        raise UsageError("--map names the columns of a log, and there is none (--csv FILE)")
    format = "json" if as_json else format
    chosen, objective = formats()[format], _objective(slo)
    if per_document and per_repeat and chosen.has_one_kind_of_line:
        raise UsageError(f"--format {format} has one kind of line; choose --per-document or --per-repeat")
    if run_dirs and (len(run_dirs) > 1 or is_sweep(run_dirs[0])):
        several = RunsReport(side_by_side(run_dirs, per_document, per_repeat, objective), full)
        _save_plots(several, plots)
        text, doubts = chosen.render_several(several), several.side.reasons
    else:
        run = read_run(run_dirs[0]) if run_dirs else read_logs(csv or (), parse_map(map or ()))
        one = _of_one(run, chosen.is_page, per_document, per_repeat, objective)
        _save_plots(one, plots)
        text, doubts = chosen.render(one), tuple(f"{one.summary.path}: {reason}" for reason in one.summary.reasons)
    read = run_dirs or csv or []
    instead = f"kvbench report {'' if run_dirs else '--csv '}{read[0]} -o FILE writes a file"
    output.write(text, file, read, instead, report=format == "terminal")
    if chosen.warns and doubts:
        output.say(f"warning: invalid measurement: {'; '.join(doubts)}")


def _objective(text: str | None) -> Slo | None:
    """The objective of a ``--slo``.

    Raises:
        UsageError: it is none.
    """
    try:
        return None if text is None else parse_slo(text)
    except ValueError as error:
        raise UsageError(f"--slo: {error} (got {text!r})") from None


def _of_one(run: Run, page: bool, per_document: bool, per_repeat: bool, slo: Slo | None) -> RunReport:
    """What a format gets of a run."""
    from kvbench.experiments.readings import ExperimentView
    from kvbench.summary.summary import summary_of

    view = ExperimentView(run, slo)
    return RunReport(summary_of(view, per_document or (page and len(run.requests) <= SHOWN_REQUESTS), per_repeat or page), view)


def _save_plots(shown: RunReport | RunsReport, folder: Path | None) -> None:
    """The plots go into their folder, where one is wanted."""
    if folder is not None:
        from kvbench.drawing.plots import standalone  # late: matplotlib

        output.save_all({f"{plot.name}.svg": standalone(plot.element) for plot in shown.plots}, folder)


build = partial(build_command, report, "kvbench report runs/first --format markdown -o table.md")
