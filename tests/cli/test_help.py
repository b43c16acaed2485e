"""Help: every command and option explains itself, in 80 columns, and the first help is quick."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.core import TyperCommand

from kvbench.cli.main import COMMANDS, main
from kvbench.config.run import RunConfig
from kvbench.config.settings import flag

LOADED = {command.name: command.load() for command in COMMANDS}


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main([*command, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", LOADED.values(), ids=str)
def test_every_command_and_option_has_help(command: TyperCommand) -> None:
    assert command.help
    missing = [param.name for param in command.params if not getattr(param, "help", None)]
    assert missing == []


@pytest.mark.parametrize("command", LOADED.values(), ids=str)
def test_every_option_states_its_default(command: TyperCommand) -> None:
    silent = [param.name for param in command.params if param.param_type_name == "option" and "default: " not in getattr(param, "help", "")]
    assert silent == []


@pytest.mark.parametrize("command", [(), *((str(name),) for name in LOADED)])
def test_help_ends_with_an_example_and_fits_80_columns(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    lines = help_of(capsys, *command).rstrip().splitlines()
    assert lines[-2].strip() == "Example:"
    assert lines[-1].startswith("    kvbench ")
    assert max(len(line) for line in lines) <= 80


def test_the_examples_of_the_commands_parse(capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in LOADED.items():
        words = help_of(capsys, str(name)).rstrip().splitlines()[-1].split()
        assert words[:2] == ["kvbench", name]
        assert command.make_context(name, words[2:]).params


def test_the_first_help_lists_the_commands_with_their_own_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    for name, command in LOADED.items():
        first = str(command.help).splitlines()[0]
        assert f"  {name}" in text
        assert first in text


def test_run_has_an_option_for_every_field_in_its_panel(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "run")
    panels = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert panels == [
        "Arguments",
        "Workload",
        "Requests at once",
        "Model and pool",
        "Host tier",
        "Engine",
        "Simulator",
        "vLLM server",
        "Times",
        "Run",
        "Output",
        "Other",
    ]
    for name, setting in RunConfig.settings().items():
        section = text.split(f"\n{'Arguments' if name == 'experiment' else setting.panel}:\n")[1].split("\n\n")[0]
        assert f"  {flag(name)} " in section
        words = " ".join(section.split())
        assert str(RunConfig.model_fields[name].description) in words


def test_help_states_units_ranges_choices_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(help_of(capsys, "run").split())
    assert "Length of each document. [tokens; 1 to 10,000,000; default: 5,011]" in words
    assert "[same|vary; default: same]" in words
    assert "[default: sequential,repeat,reverse]" in words
    assert "[0 to 1; default: 1]" in words
    assert "--compile / --no-compile" in words


def test_the_first_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from kvbench.cli.main import main; main(['--help']); "
        "heavy = {'pandas', 'numpy', 'torch', 'scipy', 'matplotlib', 'pydantic', 'transformers'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Commands:" in done.stdout


def test_the_help_of_run_imports_no_engine_and_no_pandas() -> None:
    code = (
        "import sys; from kvbench.cli.main import main; main(['run', '--help']); "
        "print(sorted({'pandas', 'torch', 'scipy', 'matplotlib', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
