"""``kvbench baseline``: what a comparison needs of a run, or of several, as a file small enough for a repository."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kvbench.cli import output
from kvbench.cli.commands import OutputFile, build_command
from kvbench.errors import Untrusted, UsageError

ENOUGH_RUNS = 3
"""Runs from which on it can be told how much they differ (:data:`kvbench.analysis.noise.LEAST_FREEDOM`)."""


def baseline(
    run_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Run folder, as `kvbench run --out` makes it; or several of one setup, better five."),
    ],
    file: OutputFile = None,
) -> None:
    """Reduce one or more runs to a small file for `kvbench compare`.

    It keeps each repeat's statistics and each request's tokens by tier, the model, workload, capacity and machine. Measure with
    --repeats 3 or more: with one repeat no time can be judged later. Several runs tell how much whole runs differ, which repeats of one
    do not.

    Exit codes: 0 done, 2 usage error, or runs of different setups, 4 an invalid measurement.
    """
    from kvbench.comparison.baseline import reduce
    from kvbench.comparison.baseline_file import write_baseline
    from kvbench.summary.trust import read_judged

    if len({path.resolve() for path in run_dirs}) < len(run_dirs):
        raise UsageError("RUN_DIR: the same run is named twice; several runs are to tell how much they differ")
    runs = [read_judged(path) for path in run_dirs]
    for run in runs:
        if run.manifest.get("status") == "invalid":
            reasons = "; ".join(run.manifest.get("reasons") or ())
            raise Untrusted(f"{run.path}: an invalid measurement, so it is no base to compare with: {reasons}")
    base = reduce(*runs)
    if not base.cells:
        raise UsageError(f"{base.source}: no pass was finished ({base.status}), so there is nothing to compare with; run it again")
    output.write(write_baseline(base), file, run_dirs)
    repeats = min(len(cell.repeats) for cell in base.cells)
    simulated = any((run.manifest.get("config") or {}).get("runner") == "simulator" for run in runs)  # a prediction has no repeats
    if base.runs == 1 and repeats < 2 and not simulated:
        output.say(f"warning: only {repeats} repeat: times cannot be gated (measure with --repeats 3)")
    if 1 < base.runs < ENOUGH_RUNS:
        output.say(
            f"warning: {base.runs} runs do not tell how much runs differ, so only tokens can be compared with them; "
            f"give one, or {ENOUGH_RUNS} or more"
        )


build = partial(build_command, baseline, "kvbench baseline runs/first -o baseline.json")
