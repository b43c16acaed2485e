"""Help: every command and option explains itself, in 80 columns, and the first help is quick."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.core import TyperCommand

from kvbench.cli.main import COMMANDS, main
from kvbench.config.settings import flag
from kvbench.experiments.composed import compose
from kvbench.experiments.registry import experiments

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


SCREENS = 2 * 24
RUNS = [(name, runner) for name, item in experiments().items() for runner in item.runners]


def options_in(text: str) -> dict[str, str]:
    """The words of each option that help shows, by how it is spelled; those of the command itself left out."""
    shown = re.split(r"\n(?=  --)", text.partition("\nOutput:\n")[0])
    return {part.split()[0]: " ".join(part.split("\n\n")[0].split()) for part in shown if part.lstrip().startswith("--")}


def applying(experiment: str, runner: str) -> set[str]:
    kind = compose(experiment, runner)
    return {flag(name) for name, item in kind.settings().items() if item.runners is None or runner in item.runners} - {"EXPERIMENT"}


def test_the_help_of_run_lists_the_experiments_with_a_sentence_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(help_of(capsys, "run").split())
    for name, item in experiments().items():
        assert f"{name} {item.sentence} {item.example}" in words


@pytest.mark.parametrize("experiment", experiments())
def test_the_help_of_an_experiment_is_two_screens_of_its_common_options(capsys: pytest.CaptureFixture[str], experiment: str) -> None:
    text = help_of(capsys, "run", experiment)
    lines = text.rstrip("\n").splitlines()
    assert len(lines) <= SCREENS
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == experiments()[experiment].example
    own = experiments()[experiment].options
    basic = {flag(name) for name, setting in own.settings().items() if setting.basic} - {"EXPERIMENT"}
    assert set(options_in(text)) == basic
    assert len(basic) >= 8


@pytest.mark.parametrize(("experiment", "runner"), RUNS)
def test_with_a_runner_help_shows_all_that_apply_to_both(capsys: pytest.CaptureFixture[str], experiment: str, runner: str) -> None:
    shown = options_in(help_of(capsys, "run", experiment, "--runner", runner))
    assert set(shown) == applying(experiment, runner)
    for name, field in compose(experiment, runner).model_fields.items():
        if flag(name) in shown:
            assert "".join(str(field.description).split()) in "".join(shown[flag(name)].split())  # lines break at hyphens, too


@pytest.mark.parametrize("experiment", experiments())
def test_help_all_shows_all_that_apply_to_the_experiment_in_panels(capsys: pytest.CaptureFixture[str], experiment: str) -> None:
    assert main(["run", experiment, "--help-all"]) == 0
    text = capsys.readouterr().out
    runners = experiments()[experiment].runners
    assert set(options_in(text)) == set().union(*(applying(experiment, runner) for runner in runners))
    for runner in runners:
        for name, setting in compose(experiment, runner).settings().items():
            if flag(name) in applying(experiment, runner):
                assert f"  {flag(name)} " in text.split(f"\n{setting.panel}:\n")[1].split("\n\n")[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trace", "--help", "--runner", "sglang"], "--runner: Input should be 'engine', 'vllm' or 'simulator' (got 'sglang')"),
        (["trace", "--help-all", "--runner=sglang"], "--runner: Input should be"),
        (["chat", "--help"], "EXPERIMENT: Input should be 'cyclic', 'trace', "),
    ],
)
def test_help_for_what_there_is_not_says_so(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["run", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"kvbench: error: {message}")


def test_help_takes_no_value_of_an_option_for_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    listing = help_of(capsys, "run")
    assert help_of(capsys, "run", "--out", "trace") == listing
    assert help_of(capsys, "run", "--vllm-arg", "--runner") == listing
    assert help_of(capsys, "run", "--out", "trace", "cyclic") == help_of(capsys, "run", "cyclic")


def test_help_states_units_ranges_choices_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(help_of(capsys, "run", "cyclic", "--runner", "engine").split())
    assert "Length of each document. [tokens; 1 to 10,000,000; default: 5,011]" in words
    assert "[same|vary; default: same]" in words
    assert "[default: sequential,repeat,reverse]" in words
    assert "[0 to 1; default: 1]" in words
    assert "--compile / --no-compile" in words


@pytest.mark.parametrize(("words", "heading"), [([], "Commands:"), (["compare"], "Verdict:")])
def test_help_that_shows_no_configuration_imports_nothing_heavy(words: list[str], heading: str) -> None:
    code = (
        f"import sys; from kvbench.cli.main import main; main({[*words, '--help']}); "
        "heavy = {'pandas', 'numpy', 'torch', 'scipy', 'matplotlib', 'pydantic', 'transformers'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert heading in done.stdout


def test_the_help_of_run_imports_no_engine_and_no_pandas() -> None:
    code = (
        "import sys; from kvbench.cli.main import main; main(['run', '--help']); "
        "heavy = {'pandas', 'torch', 'scipy', 'matplotlib', 'transformers', 'kvbench.runners.base', 'kvbench.runs.records'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
