"""What was measured is never overwritten by a result."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kvbench.cli.main import main
from tests.cli.test_hostile_text import RUN

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    assert main([*RUN, "--out", str(folder / "run")]) == 0
    assert main([*RUN, "--sweep", "reuse=0,1", "--out", str(folder / "sweep")]) == 0
    (folder / "run" / "server.log").write_text("words", encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["requests.jsonl", "passes.jsonl", "events.jsonl", "manifest.json", "server.log", "link", "hard"])
@pytest.mark.parametrize("command", ["report", "schema", "plan", "baseline", "compare"])
def test_no_command_writes_over_a_file_of_a_run(made: Path, tmp_path: Path, capsys: Captured, command: str, name: str) -> None:
    if name == "hard" and command in ("schema", "plan"):
        pytest.skip("it knows of no run")
    file = made / "run" / name
    if name in ("link", "hard"):
        file = tmp_path / name
        (file.symlink_to if name == "link" else file.hardlink_to)(made / "run" / "requests.jsonl")
    before = contents(made)
    run = str(made / "run")
    arguments = {"schema": ["summary"], "plan": [], "compare": [run, run]}.get(command, [run])
    capsys.readouterr()
    assert main([command, *arguments, "-o", str(file)]) == 2
    captured = capsys.readouterr()
    assert f"--output {file}: " in captured.err
    assert captured.err.count("\n") == 1
    assert contents(made) == before


def test_nor_over_those_of_a_sweep_a_log_a_base_or_the_page_of_a_job(
    made: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, base, run = tmp_path / "log.csv", tmp_path / "base.json", str(made / "run")
    log.write_text("ttft_ms,arm\n5,a\n", encoding="utf-8")
    assert main(["baseline", run, "-o", str(base)]) == 0
    before, kept = contents(made), contents(tmp_path)
    sweep = str(made / "sweep")
    assert main(["report", sweep, "-o", f"{sweep}/sweep.json"]) == 2
    assert main(["report", sweep, "-o", f"{sweep}/reuse-0/passes.jsonl"]) == 2
    assert main(["report", "--csv", str(log), "-o", str(log)]) == 2
    assert main(["compare", str(base), run, "-o", str(base)]) == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", f"{run}/requests.jsonl")
    assert main(["compare", run, run, "--format", "github"]) == 2
    assert (contents(made), contents(tmp_path)) == (before, kept)


def test_other_files_of_a_run_folder_are_written_again_and_again(made: Path, tmp_path: Path, capsys: Captured) -> None:
    folder = Path(shutil.copytree(made / "run", tmp_path / "run"))
    for name in ("report.md", "summary.json", os.devnull):
        for _ in range(2):
            assert main(["report", str(folder), "-o", str(folder / name)]) == 0
