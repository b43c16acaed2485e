"""The commonest mistakes: the one line that is printed says what to type instead."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kvbench.cli.main import main
from tests.made import Made, cyclic

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: Captured, *argv: str, code: int = 2) -> str:
    """The line of a command that must fail, behind ``kvbench: error:``."""
    assert main(argv) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("kvbench: error: ").strip()


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--docs", "4k", "--docs: a plain number is expected, as 4000 (got '4k')"),
        ("--doc-tokens", "4K", "--doc-tokens: a plain number of tokens is expected, as 4000 (got '4K')"),
        ("--kv-tokens", "1.5Mi", "--kv-tokens: a plain number of tokens is expected, as 1572864 (got '1.5Mi')"),
        ("--kv-tokens", "21520 tokens", "--kv-tokens: a plain number of tokens is expected, as 21520 (got '21520 tokens')"),
        ("--kv-tokens", "2GB", "--kv-tokens: a plain number of tokens is expected (got '2GB')"),
        ("--host-gib", "2GB", "--host-gib: a plain number of GiB is expected, as 2 (got '2GB')"),
        ("--host-gib", "512MiB", "--host-gib: a plain number of GiB is expected, as 0.5 (got '512MiB')"),
    ],
)
def test_a_number_with_a_unit(capsys: Captured, option: str, value: str, line: str) -> None:
    assert said(capsys, "run", option, value) == line


def test_minutes_are_not_millions(capsys: Captured) -> None:
    assert said(capsys, "serve", "--startup-timeout", "5m") == "--startup-timeout: a plain number of s is expected (got '5m')"


def test_a_name_that_looks_like_a_number_is_still_a_name(capsys: Captured) -> None:
    assert said(capsys, "run", "--dtype", "4k").startswith("--dtype: Input should be 'auto'")


@pytest.mark.parametrize("runner", ["engine", "simulator"])
def test_a_name_of_the_hub_as_model(capsys: Captured, runner: str) -> None:
    rates = ["--prefill-rate", "1000", "--restore-rate", "9000"] if runner == "simulator" else []
    assert said(capsys, "run", "--runner", runner, *rates, "--model", "Qwen/Qwen2.5-1.5B").endswith(
        "kvbench never downloads: run `hf download Qwen/Qwen2.5-1.5B --local-dir Qwen2.5-1.5B`, then give --model Qwen2.5-1.5B"
    )


def test_a_file_of_a_run_folder_instead_of_the_folder(capsys: Captured) -> None:
    Made().write(Path("runs/one"), cyclic)
    line = "runs/one/requests.jsonl: a file, and not a run folder; name its run folder: runs/one"
    assert said(capsys, "report", "runs/one/requests.jsonl") == line


@pytest.mark.parametrize("command", [["report"], ["compare", "runs"], ["baseline"]])
def test_a_folder_of_run_folders_is_told_with_what_it_holds(capsys: Captured, command: list[str]) -> None:
    Made().write(Path("runs/1"), cyclic)
    for name in "234567":
        shutil.copytree("runs/1", f"runs/{name}")
    assert said(capsys, *command, "runs") == (
        "runs: not a run folder (no manifest.json); it holds run folders, name one or more of them: "
        "runs/3, runs/4, runs/5, runs/6, runs/7 and 2 more"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--trace", "x.jsonl"], "--trace does not apply: the experiment is cyclic (it applies to `kvbench run trace`)"),
        (["--url", "none=http://x"], "--url does not apply: the runner is engine (it applies to `--runner vllm`)"),
        (["--tier", "cpu", "none"], "--tier cpu none: several values are separated by commas, without spaces: --tier cpu,none"),
        (["cyclic", "--tier", "cpu,", "none"], "--tier cpu, none: several values are separated by commas, without spaces: --tier cpu,none"),
    ],
)
def test_an_option_where_it_does_not_apply_or_with_spaces(capsys: Captured, words: list[str], line: str) -> None:
    assert said(capsys, "run", *words) == line


def test_an_experiment_behind_a_list_is_an_experiment(capsys: Captured) -> None:
    assert main(["run", "--tier", "cpu", "trace", "--help"]) == 0


@pytest.mark.parametrize("command", ["run", "serve"])
def test_an_interpreter_without_vllm(capsys: Captured, command: str) -> None:
    words = ["run", "--runner", "vllm"] if command == "run" else ["serve"]
    assert said(capsys, *words, code=1) == (
        f"{sys.executable} has no vLLM: --vllm-python PATH names an interpreter that has; "
        "scripts/vllm-environment makes one for a CPU, `pip install 'kvbench[vllm]'` one for a GPU"
    )


def test_compare_of_a_log(capsys: Captured) -> None:
    Path("log.csv").write_text("ttft_ms\n12\n")
    assert said(capsys, "compare", "log.csv", "log.csv") == (
        "log.csv: neither a run folder nor a file of `kvbench baseline`; "
        "if it is a log, `kvbench report --csv log.csv --csv FILE` shows it beside another"
    )
