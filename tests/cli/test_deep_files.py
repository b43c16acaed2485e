"""Files of a hundred thousand brackets: one line that names the file, never an internal error."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.cli.main import main

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("manifest.json", ["run", "--config", "manifest.json"]),
        ("run.toml", ["run", "--config", "run.toml"]),
        ("base.json", ["compare", "base.json", "base.json"]),
        ("lengths.jsonl", ["run", "fragmentation", "--lengths", "lengths.jsonl"]),
        ("model/config.json", ["plan", "--model", "model"]),
        ("sweep/sweep.json", ["report", "sweep"]),
        ("run/manifest.json", ["report", "run"]),
        ("log.json", ["report", "--csv", "log.json"]),
        ("trace.jsonl", ["plan", "--trace", "trace.jsonl"]),
    ],
)
def test_a_file_of_brackets_is_refused_by_name(
    name: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(("a = " if file.suffix == ".toml" else "") + DEEP, encoding="utf-8")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "internal error" not in error
    assert file.parts[0] in error
    assert len(error.splitlines()) == 1
