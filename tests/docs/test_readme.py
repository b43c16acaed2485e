"""The README: its commands run, and what it shows is what they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperCommand

from kvbench.cli.main import COMMANDS, main
from kvbench.runs.records import PassRecord, PassTotals, RequestKey, RequestRecord

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
SHOWN = README.split("<!-- output: kvbench run -->\n```text\n")[1].split("```\n<!-- end -->")[0]

KNOWN = {
    ("none", "sequential"): ("0", "-", "50,250"),
    ("none", "repeat"): ("0", "-", "50,250"),
    ("none", "reverse"): ("21,504", "-", "28,746"),
    ("cpu", "sequential"): ("0", "0", "50,250"),
    ("cpu", "repeat"): ("0", "48,640", "1,610"),
    ("cpu", "reverse"): ("21,504", "27,776", "970"),
}
"""The design's known values of the default run, profile ``engine``."""


def tokens(table: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The last three columns of the table by pass."""
    rows = re.findall(r"^(\w+) +(sequential|repeat|reverse) .* ([\d,]+) +([\d,]+|-) +([\d,]+)$", table, re.MULTILINE)
    return {(arm, name): tuple(columns) for arm, name, *columns in rows}


def title(report: str) -> set[str]:
    """The setup that the report's first lines state, less the device, which is the machine's."""
    return {part.strip() for part in re.split(r"[|\n]", report.split("\narm ")[0])} - {"engine on cpu", "engine on cuda"}


def kvbench_lines() -> list[list[str]]:
    """The words behind ``kvbench`` of every command that calls it."""
    calls = [part.split("kvbench", 1)[1] for line in LINES for part in line.split("&&") if re.search(r"(^| |/)kvbench ", part)]
    return [shlex.split(call) for call in calls]


def test_the_readme_shows_the_known_values() -> None:
    assert tokens(SHOWN) == KNOWN


def test_the_first_command_is_one_line_that_ends_with_the_main_job() -> None:
    assert LINES[0].endswith("&& .venv/bin/kvbench run")
    assert kvbench_lines()[0] == ["run"]


def test_the_first_command_measures_what_the_readme_shows(tmp_path: Path) -> None:
    code = "import sys; from kvbench.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *kvbench_lines()[0]], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert all("requests done" in line for line in done.stderr.splitlines())
    assert tokens(done.stdout) == KNOWN
    assert title(done.stdout) == title(SHOWN)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_plan_it_shows_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    shown = README.split("<!-- output: kvbench plan -->\n```text\n")[1].split("```\n<!-- end -->")[0]
    assert main(next(words for words in kvbench_lines() if words[0] == "plan")) == 0
    assert capsys.readouterr().out.startswith(shown)


@pytest.mark.parametrize("words", kvbench_lines(), ids=" ".join)
def test_every_command_parses(words: list[str]) -> None:
    command = next(command for command in COMMANDS if command.name == words[0])
    context = command.load().make_context(words[0], words[1:])
    assert isinstance(context.command, TyperCommand)


def test_every_file_it_names_exists() -> None:
    named = set(re.findall(r"(?:scripts|requirements|docs)/[\w./-]+\w", README))
    assert {"scripts/test", "requirements/constraints.txt", "docs/metrics.md"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_fields_it_asks_for_are_in_the_lines() -> None:
    fields = {
        *RequestRecord.__dataclass_fields__,
        *RequestKey.__dataclass_fields__,
        *PassRecord.__dataclass_fields__,
        *PassTotals.__dataclass_fields__,
        "ttft_ms",
    }
    asked = {field for line in LINES if line.startswith("jq ") for field in re.findall(r"\.(\w+)", line.split("'")[1])}
    assert asked == {"cached_tokens_host", "ttft_ms"}
    assert asked <= fields


def test_it_names_every_exit_code() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)]
    assert codes == [0, 1, 2, 3, 4, 130]
