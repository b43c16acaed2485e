"""``kvbench run``: measure an experiment, then read the run folder back and print its table."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import build_command
from kvbench.cli.levels import level_folder, load_levels
from kvbench.cli.options import only_given, with_options
from kvbench.config import RunConfig
from kvbench.errors import Untrusted

EXAMPLE = "kvbench run cyclic --docs 10 --kv-tokens 21520 --repeats 3 --out runs/first"


def build() -> TyperCommand:
    """The command, with an option for each field of the configuration."""
    return build_command(with_options(run, RunConfig), "run", EXAMPLE)


def run(
    ctx: typer.Context,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            rich_help_panel="Run",
            help="TOML file with these options, or a run's manifest.json, which runs it again; "
            "options given here go over it. [default: none]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            show_default=False,
            rich_help_panel="Output",
            help="Run folder to make; one that exists is refused. [default: runs/<time>-<experiment>]",
        ),
    ] = None,
    per_document: Annotated[
        bool, typer.Option("--per-document", rich_help_panel="Output", help="Show every request of every pass. [default: off]")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel="Output", help="Print the summary as one JSON document. [default: off]")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", rich_help_panel="Output", help="Show no progress. [default: off]")] = False,
    **given: Any,
) -> None:
    """Measure an experiment and print its table.

    The default reads ten documents three times (first, again in order, in reverse), with and without a cpu tier. Their KV is 2.3
    times what the device pool holds, so what reading again costs shows what the tier is worth.

    Exit codes: 0 done, 1 could not be done, 2 wrong use, 4 measured and not to be trusted, 130 interrupted.
    """
    configs = load_levels(config_file, only_given(given))
    # Late, so that help and wrong use do not wait for the engine, for pandas and for rich.
    from kvbench.cli import progress
    from kvbench.experiments import session

    parent = None if len(configs) == 1 else out or session.default_folder(configs[0])
    with _terminable():
        finished = [
            session.run(config, out if parent is None else level_folder(parent, config), progress.watcher(quiet), ctx.obj["command"])
            for config in configs
        ]

    from kvbench.analysis.summary import summarise
    from kvbench.reports import levels, tabular, terminal
    from kvbench.runfolder import read_run

    summaries = [summarise(read_run(run.path), per_document) for run in finished]
    if as_json:
        output.write(tabular.to_json(summaries[0]) if parent is None else tabular.to_json_list(summaries))
    else:
        output.write("\n".join(terminal.render(summary) for summary in summaries))
        if parent is not None:
            beside = levels.by_level([(config.concurrency, summary) for config, summary in zip(configs, summaries, strict=True)])
            output.write(f"\nBy concurrency\n{beside}\n")
    reasons = list(
        dict.fromkeys(reason for run, summary in zip(finished, summaries, strict=True) for reason in (*run.reasons, *summary.reasons))
    )
    if reasons:
        raise Untrusted(f"measured, and not to be trusted: {'; '.join(reasons)}")


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM, which a job scheduler sends, like Ctrl-C: the run folder is finished before the process ends."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
