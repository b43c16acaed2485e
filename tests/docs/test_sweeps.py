"""docs/sweeps.md: its commands parse, and its sweeps may run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kvbench.cli.main import COMMANDS
from kvbench.experiments.composed import all_fields
from kvbench.sweeps.points import plan_sweep

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
CALLS = [shlex.split(part)[1:] for line in LINES for part in line.split(" && ") if part.startswith("kvbench ")]


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_every_command_parses_and_every_sweep_is_one(words: list[str]) -> None:
    command = next(command for command in COMMANDS if command.name == words[0])
    values = command.load().make_context(words[0], words[1:]).params
    if sweep := values.get("sweep"):
        given = {name: value for name, value in values.items() if name in all_fields() and value}
        assert len(plan_sweep(None, given, sweep, []).configs) >= 2


def test_the_rule_of_semicolons_is_as_the_page_says() -> None:
    (word,) = re.findall(r"`--sweep '([^']+)'`", PAGE)
    passes = [config.resolved()["passes"] for config in plan_sweep(None, {}, [word], []).configs]
    assert passes == [["sequential", "repeat"], ["sequential", "reverse"]]


def test_the_five_open_questions_are_five_commands() -> None:
    section = PAGE.split("## What the published measurement left open")[1].split("\n## ")[0]
    assert len(re.findall(r"^kvbench run ", section, re.MULTILINE)) == 5
