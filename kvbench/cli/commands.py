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

from kvbench.cli import colour
from kvbench.drawing.width import NARROWEST, set_width


def option(panel: str, *names: str, metavar: str | None = None, callback: Callable[[Any], Any] | None = None, help: str) -> Any:
    """An option of a command itself, which no configuration holds; ``help`` ends with its default."""
    return typer.Option(*names, metavar=metavar, show_default=False, rich_help_panel=panel, callback=callback, help=help)


def _narrow(file: Path | None) -> Path | None:
    """A file does not depend on the terminal of whoever writes it."""
    if file is not None:
        set_width(NARROWEST)
    return file


OutputFile = Annotated[
    Path | None,
    option(
        "Output", "--output", "-o", metavar="FILE", callback=_narrow, help="Write to a file, and replace what it holds. [default: stdout]"
    ),
]

AsJson = Annotated[bool, option("Output", "--json", help="The same as --format json. [default: off]")]


class PanelCommand(TyperCommand):
    """A command whose help groups its options by their panel, in the order in which the panels first appear."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments as help names them, in brackets where they may be left out, then ``[OPTIONS]``."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        return [*(str(item.metavar) if item.required else f"[{item.metavar}]" for item in arguments), "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments and one for each panel."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                if param.param_type_name == "argument":
                    record = (str(param.metavar), record[1])  # typer adds brackets and Python's name of the type
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
    command.params.append(_color_option())
    return command


def _color_option() -> Any:
    """The option ``--color``, which every command has; it is taken before the others, and no function is given it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_with_color)
    return typer.main.get_command(app).params[0]


def _with_color(
    color: Annotated[
        colour.When,
        typer.Option("--color", metavar="WHEN", show_default=False, rich_help_panel="Output", callback=colour.choose, is_eager=True,
                     expose_value=False,
                     help="Colour: auto (in a terminal, unless NO_COLOR is set), always or never. [default: auto]"),
    ] = "auto",
) -> None:  # fmt: skip
    pass


@contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM, which a job scheduler sends, like Ctrl-C: folders are finished and servers stopped before the process ends."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
