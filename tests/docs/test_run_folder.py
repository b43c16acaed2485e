"""docs/run-folder.md: its tables are the schemas', its events what the engine writes, its program runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kvbench
from kvbench.cli.main import COMMANDS
from kvbench.cli.schema import names, schema_named
from tests.formats.page import MARKED, PAGE, whole
from tests.formats.schemas import lines_of

TEXT = PAGE.read_text(encoding="utf-8")
FOLDERS = Path(__file__).parents[1] / "data" / "folders"


def test_its_tables_are_those_of_the_schemas() -> None:
    assert whole(TEXT) == TEXT, "python -m tests.formats.page writes them"


def test_every_part_of_a_run_folder_has_a_table() -> None:
    shown = {(name, part or None) for _, name, part, _ in MARKED.findall(TEXT)}
    for name in ("manifest", "request", "pass", "event"):
        assert {(name, None), *((name, part) for part in schema_named(name).get("$defs", {}))} <= shown | {("manifest", "PredictionRates")}


def test_it_names_every_schema_and_every_format() -> None:
    section = TEXT.split("## Formats and their schemas")[1].split("\n## ")[0]
    assert set(names()) <= set(re.findall(r"`(\w+)`", section))
    written = {
        part
        for file in Path(kvbench.__file__).parent.rglob("*.py")
        for part in re.findall(r'^FORMAT = "(kvbench\.[\w-]+/\d)"', file.read_text(), re.M)
    }
    assert len(written) >= 7
    assert written <= set(re.findall(r"`(kvbench\.[\w-]+/\d)`", TEXT))


def test_the_events_have_the_fields_that_it_lists() -> None:
    rows = re.findall(r"^\| ((?:`[\w ]+`(?:, )?)+) \| ((?:`\w+`(?:, )?)+) \|", TEXT.split("| event | fields |")[1], re.MULTILINE)
    listed = {event: set(re.findall(r"`(\w+)`", fields)) for events, fields in rows for event in re.findall(r"`([\w ]+)`", events)}
    assert set(listed) == set(schema_named("event")["properties"]["event"]["enum"])
    found: dict[str, set[str]] = {}
    for file in FOLDERS.rglob("events.jsonl"):
        for line in lines_of(file):
            assert found.setdefault(line["event"], set(line)) == set(line)
    for event, fields in found.items():
        assert listed[event] == fields - {"event", "step", "time_s"}, event


@pytest.mark.parametrize("line", re.findall(r"^kvbench .+", TEXT, re.MULTILINE))
def test_its_commands_parse(line: str) -> None:
    words = shlex.split(line)[1:]
    command = next(command for command in COMMANDS if command.name == words[0])
    assert command.load().make_context(words[0], words[1:]).params


def test_its_program_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(FOLDERS / "cyclic")
    (tmp_path / "kvbench").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kvbench "$@"\n')
    (tmp_path / "kvbench").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = list(lines_of(FOLDERS / "cyclic" / "requests.jsonl"))
    (tmp_path / "runs" / "first").unlink()
    (tmp_path / "runs" / "first").mkdir()
    (tmp_path / "runs" / "first" / "requests.jsonl").write_text(json.dumps(lines[0] | {"end_s": None}) + "\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "is not of type 'number'" in done.stderr
