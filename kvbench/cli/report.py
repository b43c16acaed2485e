"""``kvbench report``: show a run folder again, in any format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import build_command

EXAMPLE = "kvbench report runs/first --format markdown -o table.md"


def build() -> TyperCommand:
    """The command."""
    return build_command(report, "report", EXAMPLE)


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Run folder, as `kvbench run --out` makes it.")],
    format: Annotated[
        Literal["terminal", "markdown", "csv", "json"],
        typer.Option("--format", metavar="NAME", show_default=False, rich_help_panel="Output",
                     help="terminal, markdown, csv (a line a pass) or json (the whole summary). [default: terminal]"),
    ] = "terminal",
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, rich_help_panel="Output",
                     help="Write to a file instead, in place of what it holds. [default: stdout]"),
    ] = None,
    per_document: Annotated[
        bool, typer.Option("--per-document", rich_help_panel="Output",
                           help="Show every request of every pass; csv then has a line for each of them. [default: off]")
    ] = False,
) -> None:  # fmt: skip
    """Show a run again: terminal, markdown, csv or json.

    Reads interrupted runs too, and names what had to be skipped. Always exits with 0 if the run could be read; what speaks against
    trusting it stands in the report.
    """
    from kvbench.analysis.summary import summarise
    from kvbench.reports import markdown, tabular, terminal
    from kvbench.runfolder import read_run

    render = {"terminal": terminal.render, "markdown": markdown.render, "csv": tabular.csv, "json": tabular.to_json}[format]
    text = render(summarise(read_run(run_dir), per_document))
    if file is None:
        output.write(text)
    else:
        output.save(text, file)
