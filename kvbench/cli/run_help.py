"""The help of ``kvbench run``: the experiments, then the options of the one that is named, as few of them as were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from pydantic.fields import FieldInfo

from kvbench.cli.commands import PanelCommand
from kvbench.cli.options import help_record, in_panels, sentence
from kvbench.config.settings import flag, setting_of
from kvbench.experiments.composed import all_fields, check_name, compose
from kvbench.experiments.registry import experiments
from kvbench.runners.registry import RUNNERS

HELP_ALL = "--help-all"
SELDOM = frozenset({"ray", "per_document", "quiet"})
"""Options of the command that the short help leaves out."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What help was asked for: an experiment, a runner (``None``: not named), everything."""

    experiment: str | None = None
    runner: str | None = None
    everything: bool = False

    @property
    def brief(self) -> bool:
        """Whether only the common options are shown, a sentence each."""
        return self.runner is None and not self.everything


class RunCommand(PanelCommand):
    """The command; its help depends on the other words of the command line.

    A word behind ``--ray`` is its value only if it looks like an address, so that it may stand before the experiment.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; those that ask for help are answered at once.

        Raises:
            UsageError: help was asked for with an experiment or a runner that there is not.
        """
        args = [
            "--ray=local" if word == "--ray" and ":" not in after and after != "auto" else word
            for word, after in zip(args, [*args[1:], ""], strict=False)
        ]
        if not {HELP_ALL, *ctx.help_option_names}.isdisjoint(args):
            named, _, _ = self.make_parser(ctx).parse_args([word for word in args if word != HELP_ALL])
            for option, there_are in (("experiment", experiments()), ("runner", RUNNERS)):
                if named.get(option) is not None:
                    check_name(flag(option), named[option], there_are)
            ctx.meta[__name__] = Asked(named.get("experiment"), named.get("runner"), HELP_ALL in args)
            if HELP_ALL in args or named.get("help"):
                typer.echo(ctx.get_help())
                ctx.exit()
        return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help that was asked for."""
        asked: Asked = ctx.meta.get(__name__, Asked())
        if asked.experiment is None:
            _write_experiments(self, ctx, formatter)
        else:
            _write_experiment(self, ctx, formatter, asked, asked.experiment)


def _write_experiments(command: RunCommand, ctx: Any, formatter: Any) -> None:
    """The experiments, a sentence and an example each, and where their options are."""
    formatter.write_usage("kvbench run", "[EXPERIMENT] [OPTIONS]")
    command.format_help_text(ctx, formatter)
    with formatter.section("Experiments"):
        formatter.write_dl([row for item in experiments().values() for row in ((item.name, item.sentence), ("", item.example))])
    _write_own_options(command, ctx, formatter, True)
    formatter.write_paragraph()
    formatter.write_text(
        "`kvbench run NAME --help` shows the common options of an experiment, with --runner NAME (engine, vllm, simulator) all that apply "
        "to both, and --help-all all that apply to the experiment."
    )
    command.format_epilog(ctx, formatter)


def _write_experiment(command: RunCommand, ctx: Any, formatter: Any, asked: Asked, name: str) -> None:
    """The options of one experiment, panel by panel."""
    experiment = experiments()[name]
    formatter.write_usage("kvbench run", f"{name} [OPTIONS]")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(f"{experiment.sentence} Runners: {', '.join(experiment.runners)}.")
    sections: dict[str, list[tuple[str, str]]] = {}
    for option, field in in_panels(fields_of(asked, name)):
        if option != "experiment":
            sections.setdefault(setting_of(field).panel, []).append(help_record(option, field, asked.brief))
    for panel, records in sections.items():
        with formatter.section(panel):
            formatter.write_dl(records)
    _write_own_options(command, ctx, formatter, asked.brief)
    if asked.brief:
        formatter.write_paragraph()
        formatter.write_text("More options: --runner NAME --help for those of a runner, --help-all for all.")
    with formatter.section("Example"):
        formatter.write_text(experiment.example)


def fields_of(asked: Asked, name: str) -> Mapping[str, FieldInfo]:
    """The options that are shown of an experiment: the common ones, those that apply with a runner, or all."""
    runners = experiments()[name].runners if asked.runner is None else (asked.runner,)
    if asked.brief:
        own = experiments()[name].options.model_fields
        return {option: field for option, field in own.items() if setting_of(field).basic}
    found: dict[str, FieldInfo] = {}
    for runner in runners:
        for option, field in compose(name, runner).model_fields.items():
            only_on = setting_of(field).runners
            if only_on is None or runner in only_on:
                found.setdefault(option, field)
    return found


def _write_own_options(command: RunCommand, ctx: Any, formatter: Any, brief: bool) -> None:
    """The options of the command itself, which no configuration holds."""
    records, generated = [], all_fields()
    for param in command.params:
        record = None if param.name in generated else param.get_help_record(ctx)
        if record is not None and not (brief and param.name in SELDOM):
            records.append((record[0], sentence(record[1]) if brief else record[1]))
    with formatter.section("Output"):
        formatter.write_dl(records)
