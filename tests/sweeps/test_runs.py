"""Sweeps as runs: a folder a point, gone on with after any end, and what each end says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli import progress
from kvbench.cli.main import main
from kvbench.experiments.composed import load_config
from kvbench.runs.records import RequestRecord
from kvbench.runs.run_folder import read_run
from kvbench.runs.sweep_folder import SweepFolder, read_sweep
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.sweeps.points import plan_sweep
from tests.folders import tree

Captured = pytest.CaptureFixture[str]
COMMON = ["run", "--runner", "simulator", "--docs", "4", "--doc-tokens", "100", "--kv-tokens", "256", "--prefill-rate", "1000",
          "--restore-rate", "100000"]  # fmt: skip
RUN_FILES = {"events.jsonl", "manifest.json", "passes.jsonl", "requests.jsonl"}


def sweep(out: Path, word: str = "reuse=0,0.5,1", *more: str) -> int:
    return main([*COMMON, "--sweep", word, "--out", str(out), *more])


def first_table(text: str) -> list[list[str]]:
    """The cells of the rows of the table side by side."""
    return [line.split() for line in text.split("\n\n")[0].splitlines()[2:]]


class StopsAt(Watcher):
    """Ends the run at its n-th request."""

    def __init__(self, request: int) -> None:
        self.left = request

    def request_ended(self, record: RequestRecord) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.fixture
def stopped(tmp_path: Path, capsys: Captured) -> Path:
    """A sweep that the user stopped in the middle of its second point: 24 requests a point, 30 are done."""
    watcher = StopsAt(30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "watcher", lambda quiet: watcher)
        assert sweep(tmp_path / "out") == 130
    return tmp_path / "out"


# What there is afterwards.


def test_a_folder_a_point_and_a_table_of_all(tmp_path: Path, capsys: Captured) -> None:
    assert sweep(tmp_path / "out") == 0
    runs = [read_run(tmp_path / "out" / name) for name in ("reuse-0", "reuse-0.5", "reuse-1")]
    assert [run.manifest["config"]["reuse"] for run in runs] == [0.0, 0.5, 1.0]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"sweep.json", "reuse-0", "reuse-0.5", "reuse-1"}
    captured = capsys.readouterr()
    assert [row[:4] for row in first_table(captured.out)] == [
        [reuse, arm, name, "4"] for reuse in ("0", "0.5", "1") for arm in ("none", "cpu") for name in ("sequential", "repeat", "reverse")
    ]
    assert max(len(line) for line in captured.out.splitlines() if not line.startswith("Run folder: ")) <= 80
    told = [line for line in captured.err.splitlines() if "requests done" not in line]
    assert told == [f"kvbench: reuse={value} ({n} of 3) ..." for n, value in enumerate(("0", "0.5", "1"), start=1)]


def test_a_point_is_the_run_that_its_option_alone_makes(tmp_path: Path) -> None:
    assert sweep(tmp_path / "out", "reuse=0.5,1", "--quiet") == 0
    assert main([*COMMON, "--reuse", "0.5", "--out", str(tmp_path / "alone"), "--quiet"]) == 0
    point, alone = read_run(tmp_path / "out" / "reuse-0.5"), read_run(tmp_path / "alone")
    assert point.manifest["config"] == alone.manifest["config"]
    assert [line["cached_tokens_host"] for line in point.requests] == [line["cached_tokens_host"] for line in alone.requests]


def test_what_is_swept_is_written_before_the_first_point_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(config: Any, path: Path, *_: Any) -> None:
        seen.append((json.loads((path.parent / "sweep.json").read_text()), path.name))
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "run", run)
    assert sweep(tmp_path / "out") == 130
    ((written, folder),) = seen
    assert folder == "reuse-0"
    assert (written["format"], written["key"]) == ("kvbench.sweep/1", "reuse")
    assert [(point["value"], point["folder"], point["own"], point["error"]) for point in written["points"]] == [
        (value, f"reuse-{value:g}", {"reuse": value}, None) for value in (0.0, 0.5, 1.0)
    ]
    assert written["common"]["doc_tokens"] == 100
    assert "reuse" not in written["common"]


def test_levels_of_concurrency_are_a_sweep(tmp_path: Path, capsys: Captured) -> None:
    assert main([*COMMON, "--concurrency", "1,3", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert read_sweep(tmp_path / "out").key == "concurrency"
    assert [row[0] for row in first_table(capsys.readouterr().out)] == ["1"] * 6 + ["3"] * 6
    assert sweep(tmp_path / "out", "concurrency=1,3", "--quiet", "--json") == 0  # the same sweep, all done
    document = json.loads(capsys.readouterr().out)
    assert [(run["run"], run["options"]) for run in document["runs"]] == [
        ("concurrency-1", {"concurrency": 1}),
        ("concurrency-3", {"concurrency": 3}),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sweep", "reuse=0,2"], "--reuse: Input should be less than or equal to 1"),
        (["--concurrency", "1,0"], "--concurrency: Input should be greater"),
        (["--concurrency", "1,1"], "1 is given twice"),
        (["--concurrency", "1,4", "--sweep", "reuse=0,1"], "one option is swept at a time"),
        (["--ray"], "--ray spreads the points of a sweep, and there is none"),
    ],
)
def test_wrong_use_ends_before_anything_is_measured(tmp_path: Path, capsys: Captured, words: list[str], message: str) -> None:
    assert main([*COMMON, *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# Going on.


def test_a_stopped_sweep_says_how_it_goes_on(stopped: Path, capsys: Captured) -> None:
    error = capsys.readouterr().err.splitlines()[-1]
    point = stopped / "reuse-0.5"
    assert error == (
        f"kvbench: error: interrupted; what was measured is in {point} (kvbench report {point}); the same command with --out {stopped} "
        "goes on with the points that are left"
    )
    assert {path.name for path in stopped.iterdir()} == {"sweep.json", "reuse-0", "reuse-0.5"}
    assert read_run(point).manifest["status"] == "interrupted"


def test_finished_points_are_kept_and_an_interrupted_one_runs_again_from_the_start(stopped: Path, capsys: Captured) -> None:
    finished = {name: (stopped / "reuse-0" / name).read_bytes() for name in RUN_FILES}
    partial = (stopped / "reuse-0.5" / "requests.jsonl").read_bytes()
    assert partial.count(b"\n") == 6
    capsys.readouterr()
    assert sweep(stopped) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "kvbench: reuse=0 (1 of 3): measured before, and kept"
    assert lines[1].startswith("kvbench: reuse=0.5 (2 of 3): was interrupted; kept as ")
    assert {name: (stopped / "reuse-0" / name).read_bytes() for name in RUN_FILES} == finished
    assert (stopped / "reuse-0.5.interrupted-1" / "requests.jsonl").read_bytes() == partial
    assert [len(read_run(stopped / f"reuse-{value}").requests) for value in ("0", "0.5", "1")] == [24, 24, 24]


def test_nothing_that_was_measured_is_ever_lost(stopped: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "watcher", lambda quiet: StopsAt(3))
        assert sweep(stopped) == 130
    assert sweep(stopped) == 0
    kept = [len(read_run(stopped / f"reuse-0.5.interrupted-{number}").requests) for number in (1, 2)]
    assert kept == [6, 3]


def test_a_point_of_which_only_half_a_folder_is_left_runs_again(tmp_path: Path) -> None:
    assert sweep(tmp_path / "out", "reuse=0,1") == 0
    (tmp_path / "out" / "reuse-1" / "manifest.json").unlink()
    assert sweep(tmp_path / "out", "reuse=0,1") == 0
    assert (tmp_path / "out" / "reuse-1.interrupted-1" / "requests.jsonl").exists()


@pytest.mark.parametrize(
    ("word", "more", "message"),
    [
        ("overlap=0,0.5,1", (), "holds another sweep (reuse there, overlap here)"),
        ("reuse=0,1", (), "(reuse: 0 0.5 1 there, 0 1 here)"),
        ("reuse=0,1,0.5", (), "(reuse: 0 0.5 1 there, 0 1 0.5 here)"),
        ("reuse=0,0.5,1", ("--seed", "1", "--chunk-tokens", "64"), "(seed: 0 there, 1 here; chunk_tokens: 256 there, 64 here)"),
        ("reuse=0,0.5,1", ("--host-tokens", "512"), "(host_gib: auto there, not given here; host_tokens: not given there, 512 here)"),
    ],
)
def test_the_folder_of_another_sweep_is_refused(tmp_path: Path, capsys: Captured, word: str, more: tuple[str, ...], message: str) -> None:
    assert sweep(tmp_path / "out") == 0
    before = tree(tmp_path)
    capsys.readouterr()
    assert sweep(tmp_path / "out", word, *more) == 2
    assert message in capsys.readouterr().err
    assert tree(tmp_path) == before


def test_values_may_be_spelled_otherwise_when_it_goes_on(tmp_path: Path) -> None:
    assert sweep(tmp_path / "out", "reuse=0,.5") == 0
    assert sweep(tmp_path / "out", "reuse=0.0,5e-1") == 0


@pytest.mark.parametrize("name", ["../x", "absolute", "a/../../x", "..", ".", "", "reuse-0.5", "other", "reuse-1\0", None, 3])
def test_only_the_planned_folders_of_a_sweep_are_touched(stopped: Path, capsys: Captured, name: Any) -> None:
    """A ``sweep.json`` from elsewhere cannot have anything else renamed or written."""
    victim = stopped.parent / "x"
    (victim / "deep").mkdir(parents=True)
    (victim / "manifest.json").write_text("{}", encoding="utf-8")
    file = stopped / "sweep.json"
    kept = json.loads(file.read_text(encoding="utf-8"))
    kept["points"][2]["folder"] = str(victim) if name == "absolute" else name
    file.write_text(json.dumps(kept), encoding="utf-8")
    before = tree(stopped.parent)
    assert sweep(stopped) == 2
    error = capsys.readouterr().err
    assert "sweep.json" in error or "holds another sweep" in error
    assert tree(stopped.parent) == before
    if name not in ("reuse-0.5", "other"):
        assert main(["report", str(stopped)]) == 2  # nothing elsewhere is read either


def test_a_link_in_the_place_of_a_new_file_is_not_followed(stopped: Path) -> None:
    victim = stopped.parent / "victim"
    victim.write_text("mine", encoding="utf-8")
    (stopped / "sweep.json.new").symlink_to(victim)
    assert sweep(stopped) == 0
    assert victim.read_text(encoding="utf-8") == "mine"


def test_a_folder_that_is_no_sweeps_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert main([*COMMON, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert sweep(tmp_path / "run") == 2
    assert "exists already, and is not the folder of a sweep" in capsys.readouterr().err
    assert main([*COMMON, "--out", str(tmp_path / "run")]) == 2


def test_two_processes_do_not_run_the_same_sweep(tmp_path: Path, capsys: Captured) -> None:
    options = dict(zip((word[2:].replace("-", "_") for word in COMMON[1::2]), COMMON[2::2], strict=True))
    planned = plan_sweep(None, options, ["reuse=0,0.5,1"], [])
    with SweepFolder.opened(tmp_path / "out", planned.sweep) as folder:
        assert sweep(tmp_path / "out") == 2
        assert "another kvbench runs this sweep" in capsys.readouterr().err
        folder.run_folder(planned.sweep.points[0]).mkdir()
    assert sweep(tmp_path / "out") == 0


@pytest.mark.parametrize("text", ["", "[]", '{"format": "kvbench.sweep/9"}', '{"format": "kvbench.sweep/1", "points": []}'])
def test_a_broken_record_of_a_sweep_is_named(tmp_path: Path, capsys: Captured, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    for words in (["report", str(tmp_path)], [*COMMON, "--sweep", "reuse=0,1", "--out", str(tmp_path)]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "sweep.json" in error
        assert error.count("\n") == 1


# How it ends.


def test_a_point_that_cannot_be_done_does_not_stop_the_others(tmp_path: Path, capsys: Captured) -> None:
    words = [word for word in COMMON if word not in ("--kv-tokens", "256")]
    command = [*words, "--sweep", "kv-tokens=64,256,512", "--out", str(tmp_path / "out"), "--quiet"]
    assert main(command) == 1
    captured = capsys.readouterr()
    rows = first_table(captured.out)
    assert rows[0] == ["64", *["–"] * (len(rows[1]) - 2)]  # the share of hits is two words
    assert [row[0] for row in rows] == ["64", *["256"] * 6, *["512"] * 6]
    assert "kv-tokens=64: document 0: 114 prompt and 8 output tokens need a pool of 128" in " ".join(captured.out.split())
    assert captured.err.startswith("kvbench: error: 1 of 3 points could not be done: kv-tokens=64: document 0: 114 prompt and 8 output")
    assert captured.err.count("\n") == 1
    assert main(["report", str(tmp_path / "out")]) == 0  # says the same
    assert capsys.readouterr().out == captured.out
    assert main(command) == 1


def test_out_of_memory_at_a_point_does_not_stop_the_others(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    run = session.run

    def short_of_memory(config: Any, *rest: Any) -> Any:
        if config.reuse == 0:
            raise MemoryError
        return run(config, *rest)

    monkeypatch.setattr(session, "run", short_of_memory)
    assert sweep(tmp_path / "out", "reuse=0,1") == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("kvbench: error: 1 of 2 points could not be done: reuse=0: out of memory;")
    monkeypatch.undo()
    assert sweep(tmp_path / "out", "reuse=0,1") == 0
    assert read_sweep(tmp_path / "out").points[0].error is None


def test_where_no_point_can_be_done_nothing_is_left(tmp_path: Path, capsys: Captured) -> None:
    assert sweep(tmp_path / "out", "doc-tokens=1000,2000") == 2
    assert capsys.readouterr().err.startswith("kvbench: error: --doc-tokens and --sweep")
    words = [word for word in COMMON if word not in ("--doc-tokens", "100")]
    assert main([*words, "--sweep", "doc-tokens=1000,2000", "--out", str(tmp_path / "out"), "--quiet"]) == 1
    assert "no point could be done: document 0: 1,014 prompt" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_point_that_is_not_to_be_trusted_is_measured_once_and_ends_with_4_each_time(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_check", lambda path: ["made so"] if path.name == "reuse-0" else [])
    for _ in range(2):
        assert sweep(tmp_path / "out", "reuse=0,1") == 4
        captured = capsys.readouterr()
        assert captured.err.splitlines()[-1] == "kvbench: error: invalid measurement: reuse=0: made so"
        assert "- reuse=0: made so" in captured.out
    assert "reuse=0 (1 of 2): measured before, and kept" in captured.err
    assert [read_run(tmp_path / "out" / f"reuse-{value}").manifest["status"] for value in (0, 1)] == ["invalid", "complete"]


def test_a_fault_of_ours_stops_the_sweep_with_its_own_message(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("made so")

    monkeypatch.setattr(session, "run", broken)
    assert sweep(tmp_path / "out") == 1
    assert "internal error: ZeroDivisionError: made so" in capsys.readouterr().err


# A signal, for real.


def test_ctrl_c_in_the_second_point_and_going_on(tmp_path: Path) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from kvbench.cli.main import main; sys.exit(main())"
    )
    words = ["run", "--runner", "simulator", "--docs", "100", "--doc-tokens", "100", "--sweep", "seed=1,2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-c", code, *words, "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    requests, deadline = tmp_path / "out" / "seed-2" / "requests.jsonl", time.monotonic() + 120
    try:
        while not (requests.exists() and requests.stat().st_size):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (130, "")
    assert f"the same command with --out {tmp_path / 'out'} goes on" in error
    assert [read_run(tmp_path / "out" / f"seed-{seed}").manifest["status"] for seed in (1, 2)] == ["complete", "interrupted"]
    assert main([*words, "--quiet"]) == 0
    assert len(read_run(tmp_path / "out" / "seed-2").requests) == 600


def test_a_configuration_file_may_hold_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('runner = "simulator"\ndocs = 4\ndoc-tokens = 100\nkv-tokens = 256\nreuse = 0.25\n')
    assert main(["run", "--config", str(file), "--sweep", "reuse=0,1", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert read_run(tmp_path / "out" / "reuse-1").manifest["config"] == load_config(file, {"reuse": "1"}).resolved()
