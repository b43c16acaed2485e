"""``kvbench report``: show a run folder again, or several beside each other, in any format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import build_command
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from kvbench.drawing.plots import Plot
    from kvbench.runs.run_folder import Run
    from kvbench.summary.side_by_side import SideBySide

EXAMPLE = "kvbench report runs/first --format markdown -o table.md"

SHOWN_REQUESTS = 1000
"""Requests up to which a page shows every one of them without being asked."""


def build() -> TyperCommand:
    """The command."""
    return build_command(report, "report", EXAMPLE)


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
        Literal["terminal", "markdown", "html", "csv", "json"],
        typer.Option("--format", metavar="NAME", show_default=False, rich_help_panel="Output",
                     help="terminal, markdown, html (one page with plots, which needs nothing else), csv (a line a pass) or json (the "
                     "whole summary). [default: terminal]"),
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
    if per_document and per_repeat and format == "csv":
        raise UsageError("--format csv has one kind of line; choose --per-document or --per-repeat")
    if run_dirs and (len(run_dirs) > 1 or is_sweep(run_dirs[0])):
        text = _render_several(side_by_side(run_dirs, per_document, per_repeat), format, plots, full)
    else:
        run = read_run(run_dirs[0]) if run_dirs else read_logs(csv or (), parse_map(map or ()))
        text = _render(run, format, plots, per_document, per_repeat)
    if file is None:
        output.write(text)
    else:
        output.save(text, file)


def _render(run: Run, format: str, plots: Path | None, per_document: bool, per_repeat: bool) -> str:
    """The report as text; the plots go into their folder."""
    from kvbench.experiments.readings import view_of
    from kvbench.reports.formats import markdown, terminal
    from kvbench.reports.formats.csv import to_csv
    from kvbench.reports.formats.json import to_json
    from kvbench.summary.summary import summary_of

    page, view = format == "html", view_of(run)
    summary = summary_of(view, per_document or (page and len(run.requests) <= SHOWN_REQUESTS), per_repeat or page)
    drawn: tuple[Plot, ...] = ()
    if page or plots is not None:
        from kvbench.reports.run_plots import run_plots  # late: matplotlib

        drawn = run_plots(summary, view)
    if plots is not None:
        _save_plots(drawn, plots)
    if page:
        from kvbench.reports.formats import html
        from kvbench.reports.origin import origin_of

        return html.render(summary, drawn, origin_of(view))
    return {"terminal": terminal.render, "markdown": markdown.render, "csv": to_csv, "json": to_json}[format](summary)


def _render_several(side: SideBySide, format: str, plots: Path | None, full: bool) -> str:
    """The report of several runs as text; the curve goes into the folder of plots."""
    from kvbench.reports.formats import markdown, terminal
    from kvbench.reports.formats.csv import csv_of_several
    from kvbench.reports.formats.json import json_of_several

    drawn: tuple[Plot, ...] = ()
    if format == "html" or plots is not None:
        from kvbench.reports.curve import curve  # late: matplotlib

        drawn = (*(plot for reading in side.readings for plot in reading.joint_plots(side.rows)), *curve(side))
    if plots is not None:
        _save_plots(drawn, plots)
    if format == "html":
        from kvbench.reports.formats import html

        return html.render_several(side, drawn)
    if format == "csv":
        return csv_of_several(side)
    if format == "json":
        return json_of_several(side)
    return markdown.render_several(side, full) if format == "markdown" else terminal.render_several(side, full)


def _save_plots(plots: Iterable[Plot], folder: Path) -> None:
    from kvbench.drawing.themed import standalone

    output.save_all({f"{plot.name}.svg": standalone(plot.element) for plot in plots}, folder)
