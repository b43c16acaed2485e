"""The entry point: which commands there are, and how any error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kvbench.cli import colour, output
from kvbench.cli.commands import LazyCommand
from kvbench.drawing.width import WIDEST, of_terminal
from kvbench.errors import Interrupted, KvbenchError, RunFailed
from kvbench.runs.version import __version__

COMMANDS = (
    LazyCommand("run", "kvbench.cli.run", "Measure an experiment and print its table."),
    LazyCommand("report", "kvbench.cli.report", "Show a run again: terminal, markdown, html, csv or json."),
    LazyCommand("plan", "kvbench.cli.plan", "Say whether a tier would help, and how large it must be."),
    LazyCommand("compare", "kvbench.cli.compare", "Compare a run with a base: times, and which hits were lost."),
    LazyCommand("baseline", "kvbench.cli.baseline", "Reduce one or more runs to a small file for `kvbench compare`."),
    LazyCommand("schema", "kvbench.cli.schema", "Print the JSON Schema of a format that kvbench writes."),
    LazyCommand("serve", "kvbench.cli.serve", "Start the servers that a run would start, for use by hand."),
    LazyCommand("doctor", "kvbench.cli.doctor", "Say which runners and tiers can run here, and why not."),
)

_ENGINE_PACKAGES = frozenset({"torch", "transformers", "tokenizers", "safetensors"})


class Group(TyperGroup):
    """The commands. That no help was asked for is ``False``: to convert ``None``, typer imports half of pydantic, and looks for plugins."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option ``--help`` of the group itself."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code. Errors are one line on stderr; ``KVBENCH_DEBUG=1`` adds the traceback."""
    output.hold_standard_files()
    colour.choose("auto")
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with of_terminal():
            code = _group().main(args, prog_name="kvbench", standalone_mode=False, obj={"command": ["kvbench", *args]})
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        if os.environ.get("KVBENCH_DEBUG"):
            traceback.print_exc()
        message, code = _explain(error)
        if isinstance(error, OSError):
            output.drop_stdout()
        output.say(f"error: {message}")
        return code
    if code == Interrupted.exit_code:  # typer turns Ctrl-C into this code, and says nothing
        output.say("error: interrupted")
    return code if isinstance(code, int) else 0


def _group() -> TyperGroup:
    context = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
    app = typer.Typer(
        cls=Group,
        rich_markup_mode=None,
        no_args_is_help=False,
        context_settings=context,
        options_metavar="",
        subcommand_metavar="COMMAND [OPTIONS]",
    )
    app.callback(epilog="\b\nExample:\n  kvbench run cyclic --docs 10 --kv-tokens 21520")(_root)
    group = typer.main.get_command(app)
    if not isinstance(group, TyperGroup):
        raise TypeError("kvbench is a group of commands")
    for option in group.params:  # those of completion: to convert None costs what Group tells
        if getattr(option, "is_flag", False) and option.default is None:
            option.default = False
    group.commands.update({str(command.name): command for command in COMMANDS})
    return group


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvbench {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What a KV-cache tier is worth, how large it must be, and whether the last upgrade undid it."""


def _explain(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, KvbenchError):
        return str(error), error.exit_code
    if isinstance(error, typer.TyperException):  # usage error, found by the parser
        message = error.format_message().replace("Value error, ", "")  # pydantic's words, by which typer checks choices
        context = getattr(error, "ctx", None)
        return f"{message} (see `{'kvbench' if context is None else context.command_path} --help`)", error.exit_code
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return "interrupted", Interrupted.exit_code
    if isinstance(error, ModuleNotFoundError) and error.name in _ENGINE_PACKAGES:
        return f"{error.name} is not installed, and the engine needs it; pip install 'kvbench[engine]'", RunFailed.exit_code
    if isinstance(error, MemoryError):
        return "out of memory; lower --kv-tokens, --host-tokens or --docs, or use a smaller model", RunFailed.exit_code
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'output'}: {error.strerror}", RunFailed.exit_code
    message = f"internal error: {type(error).__name__}: {error}; set KVBENCH_DEBUG=1 for the traceback and please report it"
    return message, RunFailed.exit_code
