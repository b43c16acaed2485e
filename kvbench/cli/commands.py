"""Building blocks of commands: loaded only when invoked, and help in plain text, grouped by panel."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand


class PanelCommand(TyperCommand):
    """A command whose help groups its options by their panel, in the order in which the panels first appear.

    ``bare``: options that may be given without their value, with what they then mean. A word behind one is its value only if it looks like
    an address, so that it may stand before an argument.
    """

    bare: Mapping[str, str] = MappingProxyType({})

    def filled(self, args: list[str]) -> list[str]:
        """The words, with a value behind each option that lacks its own."""
        return [
            f"{word}={self.bare[word]}" if word in self.bare and ":" not in after and after != "auto" else word
            for word, after in zip(args, [*args[1:], ""], strict=False)
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words."""
        return list(super().parse_args(ctx, self.filled(args)))

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


def build_command(
    function: Callable[..., None],
    name: str,
    example: str,
    bare: Mapping[str, str] = MappingProxyType({}),
    kind: type[PanelCommand] = PanelCommand,
) -> TyperCommand:
    """The command of a function with typer's annotations; its docstring is the help, which ends with the example.

    ``bare``: as :attr:`PanelCommand.bare`; ``kind``: what writes the help.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=kind, epilog=f"\b\nExample:\n  {example}")(function)
    command = typer.main.get_command(app)
    if not isinstance(command, PanelCommand):
        raise TypeError(f"{name} is not one command")
    command.bare = bare
    return command
