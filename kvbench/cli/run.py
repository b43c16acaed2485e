"""``kvbench run``: measure an experiment, or one for each value of an option; then read what was written back and print its table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kvbench.cli import output
from kvbench.cli.commands import OutputFile, build_command, option, terminable
from kvbench.cli.options import with_options
from kvbench.cli.run_help import RunCommand
from kvbench.config.run import RunConfig
from kvbench.errors import RunFailed, Untrusted, UsageError
from kvbench.experiments.composed import all_fields, load_config

if TYPE_CHECKING:
    from kvbench.session.session import Finished
    from kvbench.sweeps.points import Planned


def build() -> TyperCommand:
    """The command, with an option for each field of any configuration."""
    example = "kvbench run cyclic --docs 10 --kv-tokens 21520 --repeats 3 --out runs/first"
    return build_command(with_options(run, all_fields()), example, RunCommand)


def run(
    ctx: typer.Context,
    config_file: Annotated[
        Path | None,
        option(
            "Run",
            "--config",
            metavar="FILE",
            help="TOML file with these options, or a run's manifest.json, which runs it again; "
            "options given here override it. [default: none]",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        option(
            "Run",
            "--sweep",
            metavar="KEY=V1,V2,...",
            help="A run for each value of any of these options, as reuse=0,0.5,1, a folder each below --out. Values of an option "
            "that takes commas itself are separated by semicolons, as 'passes=sequential,repeat;sequential,reverse'. Given again "
            "with the same --out, it goes on with the points that are left. [default: none]",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        option(
            "Run",
            "--ray",
            metavar="[ADDRESS]",
            help="Spread the points of --sweep over a Ray cluster, one a GPU, or one a node where there are none; without an address over "
            "one that is started on this machine. [default: off]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "Output",
            "--out",
            metavar="DIR",
            help="Run folder to make; one that exists is refused, but for that of the same --sweep. [default: runs/<time>-<experiment>]",
        ),
    ] = None,
    per_document: Annotated[bool, option("Output", "--per-document", help="Show every request of every pass. [default: off]")] = False,
    as_json: Annotated[bool, option("Output", "--json", help="Print the summary as one JSON document. [default: off]")] = False,
    file: OutputFile = None,
    quiet: Annotated[bool, option("Output", "--quiet", help="Show no progress. [default: off]")] = False,
    **given: Any,
) -> None:
    """Measure an experiment and print its table.

    The default reads ten documents three times (first, again in order, in reverse), with and without a cpu tier. Their KV is 2.3
    times what the device pool holds, so what reading again costs shows what the tier is worth.

    Exit codes: 0 done, 1 could not be done, 2 usage error, 4 invalid measurement, 130 interrupted.
    """
    command: list[str] = ctx.obj["command"]
    output.require_writable(file)
    words = _sweep_words(given, sweep or [])
    if ray is not None and not words:
        raise UsageError("--ray spreads the points of a sweep, and there is none (--sweep KEY=V1,V2,...)")
    if words:
        from kvbench.sweeps.points import plan_sweep

        planned = plan_sweep(config_file, given, words, command)
        _show_sweep(_run_sweep(planned, out, ray, quiet, command), per_document, as_json, file)
        return
    config = load_config(config_file, given)
    with terminable():
        finished = _measure(config, out, quiet, command)
    # Late, so that help and usage errors do not wait for pandas.
    from kvbench.reports.formats import terminal
    from kvbench.reports.formats.json import to_json
    from kvbench.runs.run_folder import read_run
    from kvbench.summary.summary import summarise

    summary = summarise(read_run(finished.path), per_document)
    output.write(to_json(summary) if as_json else terminal.render(summary), file, (finished.path,), _where(finished.path), not as_json)
    _end_untrusted([*finished.reasons, *summary.reasons])


def _sweep_words(options: dict[str, Any], sweep: list[str]) -> list[str]:
    """What is swept; levels of ``--concurrency`` are taken out of the options, as they are a sweep too."""
    if "," not in str(options.get("concurrency", "")):
        return sweep
    return [f"concurrency={options.pop('concurrency')}", *sweep]


def _run_sweep(planned: Planned, out: Path | None, ray: str | None, quiet: bool, command: list[str]) -> Path:
    """Measure the points that are left; returns the sweep's folder.

    Raises:
        RunFailed: none of the points could be done.
    """
    from kvbench.runs.sweep_folder import SweepFolder
    from kvbench.session import session

    def tell(line: str) -> None:
        if not quiet:
            output.say(line)

    parent = out or session.default_folder(planned.configs[0])
    with terminable(), SweepFolder.opened(parent, planned.sweep) as folder:
        if ray is None:
            from kvbench.sweeps import loop

            loop.run_points(planned, folder, partial(_measure, quiet=quiet, command=command), tell)
        else:
            from kvbench.sweeps import ray_cluster

            ray_cluster.run_points(planned, folder, partial(_measure, quiet=True, command=command), tell, ray)
        points = folder.sweep.points
        if not any(folder.run_folder(point).exists() for point in points):
            raise RunFailed(f"no point could be done: {'; '.join(dict.fromkeys(str(point.error) for point in points))}")
    return parent


def _measure(config: RunConfig, out: Path | None, quiet: bool, command: list[str]) -> Finished:
    """One run, also as a point of a sweep, here or on another machine."""
    # Late, so that help and usage errors do not wait for the engine and for rich.
    from kvbench.cli import progress
    from kvbench.session import session

    return session.run(config, out, progress.watcher(quiet), command)


def _show_sweep(parent: Path, per_document: bool, as_json: bool, file: Path | None) -> None:
    """The report of a sweep, and how it ends.

    Raises:
        RunFailed: a point could not be done.
        Untrusted: one is invalid.
    """
    from kvbench.reports.formats import json, terminal
    from kvbench.reports.formats.format import RunsReport
    from kvbench.reports.side_by_side import told
    from kvbench.summary.side_by_side import side_by_side

    side = side_by_side([parent], per_document)
    output.write((json if as_json else terminal).FORMAT.render_several(RunsReport(side)), file, (), _where(parent), not as_json)
    if failed := list(told(side)):
        count = f"{len(failed)} of {len(side.runs)} points could not be done"
        raise RunFailed(f"{count}: {'; '.join(failed)}; the same command with --out {parent} tries again")
    _end_untrusted(side.reasons)


def _where(path: Path) -> str:
    return f"what was measured is in {path} (kvbench report {path})"


def _end_untrusted(reasons: Iterable[str]) -> None:
    if found := list(dict.fromkeys(reasons)):
        raise Untrusted(f"invalid measurement: {'; '.join(found)}")
