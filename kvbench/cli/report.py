"""``kvbench report``: show a run folder again, or several beside each other, in any format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import build_command
from kvbench.errors import UsageError
from kvbench.reports.formats.format import RunReport, RunsReport, formats

if TYPE_CHECKING:
    from kvbench.runs.run_folder import Run

EXAMPLE = "kvbench report runs/first --format markdown -o table.md"

SHOWN_REQUESTS = 1000
"""Requests up to which a page shows every one of them without being asked."""


def build() -> TyperCommand:
    """The command."""
    return build_command(report, "report", EXAMPLE)


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
        typer.Argument(metavar="[RUN_DIR]...", show_default=False,
                       help="Run folder, as `kvbench run --out` makes it. Several, or the folder of a sweep: side by side."),
    ] = None,
    csv: Annotated[
        list[Path] | None,
        typer.Option("--csv", metavar="FILE", show_default=False, rich_help_panel="Your own log",
                     help="A log in place of a run folder: CSV, JSON lines, or what `vllm bench serve --save-detailed` writes. "
                     "Repeatable: arms side by side, named by their files. [default: none]"),
    ] = None,
    map: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=COLUMN", show_default=False, rich_help_panel="Your own log",
                     help="The log's columns: ttft (ms) or ttft_s, arm, pass, repeat, doc, error, prompt, device, host, computed. "
                     "Several by commas; repeatable. [default: columns of these names]"),
    ] = None,
    format: Annotated[
        str,
        typer.Option("--format", metavar="NAME", show_default=False, rich_help_panel="Output", callback=_known_format,
                     help=f"{_formats_in_words()}. [default: terminal]"),  # annotations are read when the command is built
    ] = "terminal",
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, rich_help_panel="Output",
                     help="Write to a file instead, in place of what it holds. [default: stdout]"),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="DIR", show_default=False, rich_help_panel="Output",
                     help="Write the plots of html (SVG) into this folder too; of several runs, the curve. [default: none]"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", rich_help_panel="Output",
                           help="Of several runs, show each one's whole report (terminal, markdown). [default: off]")
    ] = False,
    per_document: Annotated[
        bool, typer.Option("--per-document", rich_help_panel="Output",
                           help="Show every request of every pass; csv then has a line for each of them. [default: off]")
    ] = False,
    per_repeat: Annotated[
        bool, typer.Option("--per-repeat", rich_help_panel="Output",
                           help="Show each repeat by itself; csv then has a line for each of them. [default: off]")
    ] = False,
) -> None:  # fmt: skip
    """Show a run again: terminal, markdown, html, csv or json.

    Reads interrupted runs too, and names what had to be skipped; several runs, or a sweep, side by side; and people's own logs (--csv).
    Always exits with 0 if it could be read; what speaks against trusting it stands in the report.
    """
    from kvbench.analysis.logfile import parse_map, read_logs
    from kvbench.runs.run_folder import read_run
    from kvbench.runs.sweep_folder import is_sweep
    from kvbench.summary.side_by_side import side_by_side

    if not run_dirs and not csv:
        raise UsageError("Missing argument 'RUN_DIR': name a run folder, or a log (--csv FILE)")
    if run_dirs and csv:
        raise UsageError(f"{run_dirs[0]} and --csv {csv[0]}: a report shows either run folders or logs")
    if map and not csv:
        raise UsageError("--map names the columns of a log, and there is none (--csv FILE)")
    chosen = formats()[format]
    if per_document and per_repeat and chosen.has_one_kind_of_line:
        raise UsageError(f"--format {format} has one kind of line; choose --per-document or --per-repeat")
    if run_dirs and (len(run_dirs) > 1 or is_sweep(run_dirs[0])):
        several = RunsReport(side_by_side(run_dirs, per_document, per_repeat), full)
        _save_plots(several, plots)
        text, doubts = chosen.render_several(several), several.side.reasons
    else:
        run = read_run(run_dirs[0]) if run_dirs else read_logs(csv or (), parse_map(map or ()))
        one = _of_one(run, chosen.is_page, per_document, per_repeat)
        _save_plots(one, plots)
        text, doubts = chosen.render(one), tuple(f"{one.summary.path}: {reason}" for reason in one.summary.reasons)
    if file is None:
        output.write(text)
    else:
        output.save(text, file)
    if chosen.warns and doubts:
        typer.echo(f"kvbench: warning: invalid measurement: {'; '.join(doubts)}", err=True)


def _of_one(run: Run, page: bool, per_document: bool, per_repeat: bool) -> RunReport:
    """What a format gets of a run."""
    from kvbench.experiments.readings import ExperimentView
    from kvbench.summary.summary import summary_of

    view = ExperimentView(run)
    return RunReport(summary_of(view, per_document or (page and len(run.requests) <= SHOWN_REQUESTS), per_repeat or page), view)


def _save_plots(shown: RunReport | RunsReport, folder: Path | None) -> None:
    """The plots go into their folder, where one is wanted."""
    if folder is not None:
        from kvbench.drawing.plots import standalone  # late: matplotlib

        output.save_all({f"{plot.name}.svg": standalone(plot.element) for plot in shown.plots}, folder)
