"""A disk that is full or read-only, a folder that is removed, a stdout that is closed: one line, and nothing of the run is lost."""

from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvbench.cli import progress
from kvbench.cli.main import main
from kvbench.runs import run_folder, sweep_folder
from kvbench.session.watcher import Watcher
from tests.cli.test_hostile_text import RUN

Captured = pytest.CaptureFixture[str]
LONG = [*RUN, "--docs", "60", "--passes", "sequential,repeat,reverse"]
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class At(Watcher):
    """Does something when so many requests have ended."""

    def __init__(self, count: int, act: Callable[[], object]) -> None:
        self.left, self.act = count, act

    def request_ended(self, record: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


@pytest.fixture
def limit() -> Iterator[Callable[[int], None]]:
    """Sets how large a file of this process may become."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def in_shell(words: list[str], rest: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.join([sys.executable, '-m', 'kvbench', *words])} {rest}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=120)


def one_line(text: str, *parts: str) -> None:
    assert text.startswith("kvbench: error: ")
    assert text.count("\n") == 1
    assert "internal error" not in text
    for part in parts:
        assert part in text


@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_a_stdout_that_cannot_be_written_is_said_in_a_line(tmp_path: Path, where: str) -> None:
    out = tmp_path / "run"
    done = in_shell([*RUN, "--out", str(out)], where)
    assert done.returncode == 1
    one_line(done.stderr, "stdout: ", f"what was measured is in {out} (kvbench report {out})")
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["status"] == "complete"
    done = in_shell(["report", str(out)], where)
    assert done.returncode == 1
    one_line(done.stderr, "stdout: ", f"kvbench report {out} -o FILE")
    for words in (["baseline", str(out)], ["schema", "run"], ["plan"], ["report", str(out), "--format", "json"]):
        done = in_shell(words, where)
        assert done.returncode == 1
        one_line(done.stderr, "stdout: ")


def test_help_that_cannot_be_written_is_said_in_a_line() -> None:
    done = in_shell(["--help"], "> /dev/full")
    assert done.returncode == 1
    one_line(done.stderr, "No space left on device")


@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-"])
def test_a_stderr_that_cannot_be_written_changes_no_exit_code_and_no_file(tmp_path: Path, where: str) -> None:
    out = tmp_path / "run"
    assert in_shell([*RUN, "--out", str(out)], where).returncode == 0
    done = in_shell([*RUN, "--out", str(out)], where)
    assert (done.returncode, done.stdout) == (2, "")
    assert in_shell(["report", str(out)], where).returncode == 0
    sweep = in_shell([*RUN[:-1], "--sweep", "reuse=0,1", "--out", str(tmp_path / "sweep")], where)
    assert sweep.returncode == 0


def test_a_disk_that_is_full_at_the_start_leaves_nothing(
    tmp_path: Path, capsys: Captured, limit: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in ([], ["--sweep", "reuse=0,1"]):
        limit(100)
        code = main([*RUN, *words, "--out", str(tmp_path / "run")])
        limit(resource.RLIM_INFINITY)
        assert code == 2
        one_line(capsys.readouterr().err, f"--out {tmp_path / 'run'}: cannot be written (File too large)")
        assert not list(tmp_path.iterdir())
        assert main([*RUN, *words, "--out", str(tmp_path / "run")]) == 0
        shutil.rmtree(tmp_path / "run")
        capsys.readouterr()


def test_a_disk_that_is_full_in_mid_run_keeps_what_was_measured(
    tmp_path: Path, capsys: Captured, limit: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    act = At(120, lambda: limit((out / "requests.jsonl").stat().st_size + 20))
    monkeypatch.setattr(progress, "watcher", lambda quiet: act)
    code = main([*LONG, "--out", str(out)])
    limit(resource.RLIM_INFINITY)
    assert code == 1
    one_line(capsys.readouterr().err, f"{out}: cannot be written (File too large)", f"what was measured is in {out} (kvbench report {out})")
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "interrupted"
    assert not list(out.glob("*.new"))
    assert main(["report", str(out)]) == 0
    assert len((out / "requests.jsonl").read_bytes().splitlines()) >= 120


@pytest.mark.parametrize("what", ["run", "sweep"])
def test_where_no_new_file_can_be_written_the_old_manifest_says_how_it_ended(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As on a disk without a block left, or in a folder that became read-only: what is there can still be changed."""
    out = tmp_path / "run"

    def full(path: Path, *_: object) -> None:
        raise FULL

    def act() -> None:
        for module in (run_folder, sweep_folder):
            monkeypatch.setattr(module, "replace_json", full)

    monkeypatch.setattr(progress, "watcher", lambda quiet: At(20, act))
    more = {"run": [], "sweep": ["--sweep", "reuse=0,1"]}[what]
    assert main([*RUN, "--docs", "10", *more, "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert "internal error" not in error
    one_line(error, f"{out}", "No space left on device")
    first = out / "reuse-0" if what == "sweep" else out
    assert json.loads((first / "manifest.json").read_text(encoding="utf-8"))["status"] == "interrupted"
    assert main(["report", str(first)]) == 0


def test_a_folder_that_is_removed_in_mid_run_ends_it_at_once(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    act = At(30, lambda: shutil.rmtree(out))
    monkeypatch.setattr(progress, "watcher", lambda quiet: act)
    assert main([*LONG, "--out", str(out)]) == 1
    one_line(capsys.readouterr().err, f"{out}: was removed while the run went on", "kvbench report")
    assert act.left > -5
    assert not out.exists()


def test_a_file_of_a_result_is_whole_or_not_there(tmp_path: Path, capsys: Captured, limit: Callable[[int], None]) -> None:
    limit(100)
    code = main(["schema", "run", "-o", str(tmp_path / "file")])
    limit(resource.RLIM_INFINITY)
    assert code == 2
    one_line(capsys.readouterr().err, "cannot be written (File too large)")
    assert not list(tmp_path.iterdir())


def test_the_status_that_controls_give_a_run_needs_no_new_file_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    assert main([*RUN, "--out", str(out)]) == 0
    run_folder.set_status(out, "running")

    def full(path: Path, *_: object) -> None:
        raise FULL

    monkeypatch.setattr(run_folder, "replace_json", full)
    run_folder.set_status(out, "interrupted", ["its controls were not finished: the disk is full"])
    assert run_folder.read_manifest(out)["status"] == "interrupted"


@pytest.mark.parametrize("kept", [0, 8, 16], ids=lambda blocks: f"{blocks} blocks taken")
def test_a_file_system_without_a_block_left(tmp_path: Path, kept: int) -> None:
    """A real one, of 96 KiB, where this user may mount it."""
    if shutil.which("unshare") is None:
        pytest.skip("no file system can be mounted here")
    out = tmp_path / "disk" / "run"
    kvbench = shlex.join([sys.executable, "-m", "kvbench"])
    mount = f"mkdir {out.parent} && mount -t tmpfs -o size=96k tmpfs {out.parent} || exit 99"
    run = f"{kvbench} {shlex.join([*LONG, '--out', str(out)])} >/dev/null; echo $?; ls {out}"
    fill = f"dd if=/dev/zero of={out.parent}/ballast bs=4k count={kept} 2>/dev/null"
    script = f"{mount}; {fill}; {run}; {kvbench} report {out} --format json"
    done = subprocess.run(["unshare", "-rm", "bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode in (1, 99):
        pytest.skip("no file system can be mounted here")
    code, *files, rest = done.stdout.partition("{")[0].split("\n")
    assert (code, files, rest) == ("1", ["events.jsonl", "manifest.json", "passes.jsonl", "requests.jsonl"], "")
    one_line(done.stderr, f"{out}: cannot be written (No space left on device)", f"kvbench report {out}")
    assert '"status": "interrupted"' in done.stdout
