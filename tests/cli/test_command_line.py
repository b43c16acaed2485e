"""The command line itself: short options, usage lines, the terminal's width, completion by a shell."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kvbench
from kvbench.cli.commands import LazyCommand
from kvbench.cli.main import COMMANDS, main
from tests.made import Made, cyclic

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", [[], *([str(command.name)] for command in COMMANDS), ["run", "cyclic"]])
def test_h_is_help(capsys: Captured, command: list[str]) -> None:
    assert main([*command, "-h"]) == 0
    text = capsys.readouterr().out
    assert main([*command, "--help"]) == 0
    assert capsys.readouterr().out == text


def test_capital_v_is_version(capsys: Captured) -> None:
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == f"kvbench {kvbench.__version__}\n"


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ([], "kvbench COMMAND [OPTIONS]"),
        (["run"], "kvbench run [EXPERIMENT] [OPTIONS]"),
        (["run", "cyclic"], "kvbench run cyclic [OPTIONS]"),
        (["report"], "kvbench report [RUN_DIR...] [OPTIONS]"),
        (["plan"], "kvbench plan [OPTIONS]"),
        (["compare"], "kvbench compare BASE NEW [OPTIONS]"),
        (["baseline"], "kvbench baseline RUN_DIR... [OPTIONS]"),
        (["schema"], "kvbench schema NAME [OPTIONS]"),
        (["serve"], "kvbench serve [OPTIONS]"),
        (["doctor"], "kvbench doctor [OPTIONS]"),
    ],
)
def test_usage_lines(capsys: Captured, command: list[str], usage: str) -> None:
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == f"Usage: {usage}"
    assert "list[" not in text


@pytest.mark.parametrize(("columns", "least", "most"), [(60, 40, 80), (80, 70, 80), (120, 100, 120), (300, 100, 120)])
def test_help_is_as_wide_as_the_terminal_up_to_120(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, columns: int, least: int, most: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["compare", "--help"]) == 0
    assert least <= max(map(len, capsys.readouterr().out.splitlines())) <= most


def completed(shell: str, line: str) -> list[str]:
    """What a shell is told for a command line that is cut short."""
    words = line.split(" ")
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    environment |= {"_KVBENCH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "kvbench"], env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kvbench re", ["report"]),
        ("kvbench run cyclic --pas", ["--passes"]),
        ("kvbench run --tier none,c", ["none,cpu"]),
        ("kvbench run --runner ", ["engine", "vllm", "simulator"]),
        ("kvbench run tr", ["trace"]),
    ],
)
def test_bash_completes_commands_options_and_values(line: str, words: list[str]) -> None:
    assert completed("bash", line) == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_as_well(shell: str) -> None:
    assert "trace" in "".join(completed(shell, "kvbench run tr"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_the_shell_takes(tmp_path: Path, shell: str) -> None:
    shown = [sys.executable, "-m", "kvbench", "--show-completion", shell]
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(shown, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "_KVBENCH_COMPLETE" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=60)


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_every_command_writes_to_a_file_where_it_is_told_to(command: LazyCommand) -> None:
    assert any("-o" in param.opts for param in command.load().params)


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_every_command_with_a_format_json_has_json(command: LazyCommand) -> None:
    params = command.load().params
    formats = any("--format" in param.opts for param in params)
    assert any("--json" in param.opts for param in params) == (formats or command.name in ("run", "doctor"))


@pytest.mark.parametrize("command", ["report", "compare"])
def test_json_is_the_format_json(tmp_path: Path, capsys: Captured, command: str) -> None:
    Made().write(tmp_path / "run", cyclic)
    words = [command, *[str(tmp_path / "run")] * (1 if command == "report" else 2)]
    assert main([*words, "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert main([*words, "--json", "-o", str(tmp_path / "out.json")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "out.json").read_text() == text


def test_a_run_writes_its_report_to_a_file(tmp_path: Path, capsys: Captured, small_model: Path) -> None:
    sizes = ["--model", str(small_model), "--docs", "2", "--doc-tokens", "64", "--kv-tokens", "256", "--passes", "sequential", "--quiet"]
    assert main(["run", *sizes, "--out", str(tmp_path / "run"), "-o", str(tmp_path / "table.txt")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "table.txt").read_text().startswith("cyclic | ")


@pytest.mark.parametrize(("file", "why"), [("none/table.txt", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_written_ends_a_run_before_it_starts(tmp_path: Path, capsys: Captured, file: str, why: str) -> None:
    assert main(["run", "--out", str(tmp_path / "run"), "-o", str(tmp_path / file)]) == 2
    assert capsys.readouterr().err.endswith(f": cannot be written ({why}); name a file you may write to\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("columns", "least", "most"), [(40, 70, 80), (80, 70, 80), (100, 90, 100), (300, 110, 120)])
def test_a_report_is_as_wide_as_the_terminal_from_80_to_120(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, columns: int, least: int, most: int
) -> None:
    Made().write(tmp_path / "run", cyclic)
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "narrow.txt")]) == 0
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["report", str(tmp_path / "run")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("Run folder: ")]
    assert least <= max(map(len, lines)) <= most
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "wide.txt")]) == 0
    assert (tmp_path / "wide.txt").read_text() == (tmp_path / "narrow.txt").read_text()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "environment", "words", "coloured"),
    [
        (True, {}, [], True),
        (False, {}, [], False),
        (True, {"NO_COLOR": "1"}, [], False),
        (True, {"TERM": "dumb"}, [], False),
        (True, {"NO_COLOR": "1"}, ["--color", "always"], True),
        (False, {}, ["--color", "always"], True),
        (True, {}, ["--color=never"], False),
        (True, {}, ["--json"], False),
    ],
)
def test_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], words: list[str], coloured: bool
) -> None:
    Made().write(tmp_path / "run", cyclic)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stdout", plain)
    assert main(["report", str(tmp_path / "run"), *(["--json"] if "--json" in words else [])]) == 0
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["report", str(tmp_path / "run"), *words]) == 0
    assert ("\x1b[" in shown.getvalue()) == coloured
    assert re.sub(r"\x1b\[\d+m", "", shown.getvalue()) == plain.getvalue()


def test_a_file_has_no_colour(tmp_path: Path) -> None:
    Made().write(tmp_path / "run", cyclic)
    assert main(["report", str(tmp_path / "run"), "--color", "always", "-o", str(tmp_path / "report.txt")]) == 0
    assert "\x1b[" not in (tmp_path / "report.txt").read_text()


def test_an_error_is_red_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    assert main(["report", "/nowhere"]) == 2
    assert shown.getvalue().startswith("\x1b[31mkvbench: error:\x1b[0m /nowhere: ")
