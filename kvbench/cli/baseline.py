"""``kvbench baseline``: what a comparison needs of a run, as a file small enough for a repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import build_command
from kvbench.errors import Untrusted, UsageError

EXAMPLE = "kvbench baseline runs/first -o baseline.json"


def build() -> TyperCommand:
    """The command."""
    return build_command(baseline, "baseline", EXAMPLE)


def baseline(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Run folder, as `kvbench run --out` makes it.")],
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, rich_help_panel="Output",
                     help="Write to a file, in place of what it holds. [default: stdout]"),
    ] = None,
) -> None:  # fmt: skip
    """Reduce a run to a small file for `kvbench compare`.

    It keeps each repeat's statistics and each request's tokens by tier, the model, workload, capacity and machine. Measure with
    --repeats 3 or more: with one repeat no time can be judged later.
    """
    from kvbench.analysis.baseline import reduce
    from kvbench.runfolder import read_run

    run = reduce(read_run(run_dir))
    if run.status == "invalid":
        raise Untrusted(f"{run_dir}: not to be trusted, so it is no base to compare with: {'; '.join(run.reasons)}")
    if not run.cells:
        raise UsageError(f"{run_dir}: no pass was finished ({run.status}), so there is nothing to compare with; run it again")
    repeats = min(len(cell.repeats) for cell in run.cells)
    text = json.dumps(run.to_json(), separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace('{"arm"', '\n{"arm"') + "\n"
    if file is None:
        output.write(text)
    else:
        output.save(text, file)
    if repeats < 2:
        typer.echo(f"kvbench: warning: {repeats} repeat of a pass: only tokens can be compared with it; --repeats 3 gives times", err=True)
