"""Building blocks of commands: loaded only when invoked, help in plain text, grouped by panel, and an end by SIGTERM."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


def option(panel: str, *names: str, metavar: str | None = None, help: str) -> Any:
    """An option of a command itself, which no configuration holds; ``help`` ends with its default."""
    return typer.Option(*names, metavar=metavar, show_default=False, rich_help_panel=panel, help=help)


OutputFile = Annotated[
    Path | None,
    option("Output", "--output", "-o", metavar="FILE", help="Write to a file instead, in place of what it holds. [default: stdout]"),
]


class PanelCommand(TyperCommand):
    """A command whose help groups its options by their panel, in the order in which the panels first appear."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments and one for each panel."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                default = "Arguments" if param.param_type_name == "argument" else "Other"
                sections.setdefault(getattr(param, "rich_help_panel", None) or default, []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


class LazyCommand(TyperCommand):
    """A command that is a name and a line of help until it is invoked; then its module makes the real one.

    ``kvbench --help`` lists commands without importing what they need. The module has ``build() -> TyperCommand``.
    """

    def __init__(self, name: str, module: str, help: str) -> None:
        super().__init__(name, help=help)
        self._module = module

    def load(self) -> TyperCommand:
        """Import the command's module and make the real command."""
        command: TyperCommand = importlib.import_module(self._module).build()
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The real command's context, so that the real command is invoked and shows its own help."""
        return self.load().make_context(info_name, args, parent, **extra)


def build_command(function: Callable[..., None], example: str, kind: type[PanelCommand] = PanelCommand) -> TyperCommand:
    """The command of a function with typer's annotations; its docstring is the help, which ends with the example."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(function.__name__, cls=kind, epilog=f"\b\nExample:\n  {example}")(function)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


@contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM, which a job scheduler sends, like Ctrl-C: folders are finished and servers stopped before the process ends."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
