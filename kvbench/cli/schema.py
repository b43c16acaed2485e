"""``kvbench schema``: the formats that kvbench writes, as JSON Schemas."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Literal, get_args

import typer

from kvbench.cli import output
from kvbench.cli.commands import OutputFile, build_command

Name = Literal["run", "manifest", "request", "pass", "event", "sweep", "summary", "baseline", "plan"]
_FILES = {"manifest": "manifest.json", "request": "requests.jsonl", "pass": "passes.jsonl", "event": "events.jsonl"}


def schema(
    name: Annotated[
        Name,
        typer.Argument(metavar="NAME", show_default=False,
                       help="run (a whole run folder), manifest, request, pass, event (one file of it, or one line of that file), sweep "
                       "(sweep.json), summary (`kvbench report --format json`), baseline (`kvbench baseline`) or plan "
                       "(`kvbench plan --format json`)."),
    ],
    file: OutputFile = None,
) -> None:  # fmt: skip
    """Print the JSON Schema of a format that kvbench writes.

    It is made from the types that are written: each field with its type, and what it means. A format gains fields without a new version,
    so an object may have further fields.
    """
    output.write(json.dumps(schema_named(name), indent=2, ensure_ascii=False) + "\n", file)


def names() -> tuple[str, ...]:
    """Every name that the command takes."""
    return get_args(Name)


def schema_named(name: str) -> dict[str, Any]:
    """The schema of one of :func:`names`."""
    if name == "run":
        from kvbench.session.run_schema import run_schema

        return run_schema()
    if name in _FILES:
        from kvbench.session.run_schema import part_schema

        return part_schema(_FILES[name])
    if name == "sweep":
        from kvbench.runs.sweep_schema import sweep_schema

        return sweep_schema()
    if name == "summary":
        from kvbench.summary.summary_schema import summary_schema

        return summary_schema()
    if name == "baseline":
        from kvbench.comparison.baseline_file import baseline_schema

        return baseline_schema()
    from kvbench.planning.plan_schema import plan_schema

    return plan_schema()


build = partial(build_command, schema, "kvbench schema summary -o summary.schema.json")
