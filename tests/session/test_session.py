"""Sessions: whole runs on the real engine, small ones; what they measure, and what is left when they stop half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kvbench.analysis.prediction import Agreement, compare
from kvbench.cli import progress
from kvbench.cli.main import main
from kvbench.errors import Interrupted, OutOfMemory, UsageError
from kvbench.experiments.composed import load_config
from kvbench.experiments.readings import ExperimentView
from kvbench.runners.engine.backend import EngineBackend
from kvbench.runners.registry import RUNNERS, RunnerKind
from kvbench.runs.records import RequestRecord
from kvbench.runs.run_folder import Run, read_run
from kvbench.session import session
from kvbench.session.watcher import Watcher
from kvbench.summary import validity
from kvbench.summary.summary import Summary, summarise

SIZES = {"docs": 4, "doc_tokens": 100, "kv_tokens": 256, "block_size": 4, "chunk_tokens": 16}
PROMPT = 114
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measure(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Runs a configuration, with :data:`SIZES` where nothing else is given, and reads its folder."""

    def run(**given: Any) -> Run:
        config = load_config(None, {"model": str(small_model), **SIZES, **given})
        finished = session.run(config, tmp_path_factory.mktemp("runs") / "run", Watcher(), ["kvbench", "run"])
        assert finished.reasons == []
        return read_run(finished.path)

    return run


@pytest.fixture(scope="module")
def plain(measure: Callable[..., Run]) -> Run:
    return measure()


def arguments(model: Path, **given: Any) -> list[str]:
    values = {"model": model, **SIZES, **given}
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def tokens_by_pass(run: Run) -> list[tuple[str, str, int | None, int | None, int | None]]:
    return [(row.arm, row.pass_label, row.device, row.host, row.computed) for row in summarise(run).passes]


def notes_of(run: Run) -> str:
    summary: Summary = summarise(run)
    return " ".join(summary.notes)


def test_the_tokens_by_tier(plain: Run) -> None:
    # 31 blocks a request in a pool of 64, so reading in order meets nothing. Reversed, two documents are there whole (112 tokens: a hit
    # ends before the last token's block), and one block of a third.
    assert tokens_by_pass(plain) == [
        ("none", "sequential", 0, 0, 456), ("none", "repeat", 0, 0, 456), ("none", "reverse", 228, 0, 228),
        ("cpu", "sequential", 0, 0, 456), ("cpu", "repeat", 0, 448, 8), ("cpu", "reverse", 228, 220, 8),
    ]  # fmt: skip
    reverse = [line["cached_tokens_device"] for line in plain.requests if (line["arm"], line["pass"]) == ("none", "reverse")]
    assert reverse == [112, 112, 4, 0]


def test_a_run_is_complete_and_says_what_it_was(plain: Run, small_model: Path) -> None:
    manifest = plain.manifest
    assert (manifest["status"], manifest["reasons"], plain.skipped) == ("complete", [], [])
    assert manifest["capacity"] == {"device_tokens": 256, "block_size": 4, "host_tokens": {"none": None, "cpu": 448}, "chunk_tokens": 16}
    assert manifest["workload"]["working_set_tokens"] == 400
    assert manifest["working_set_ratio"] == 1.5625
    assert manifest["model"]["bytes_per_token"] == 2 * 2 * 2 * 8 * 4
    assert (manifest["model"]["name"], manifest["model"]["architecture"]) == (str(small_model), "Qwen2ForCausalLM")
    assert manifest["environment"]["device"] == "cpu"
    assert manifest["environment"]["packages"]["torch"]


def test_every_request_is_there_in_order_and_its_tokens_sum_to_the_prompt(plain: Run) -> None:
    assert len(plain.requests) == 24
    assert len({line["request_id"] for line in plain.requests}) == 24
    for line in plain.requests:
        assert line["cached_tokens_device"] + line["cached_tokens_host"] + line["computed_tokens"] == line["prompt_tokens"] == PROMPT
        assert line["output_tokens"] == len(line["token_times_s"]) == sum(line["chunk_tokens"]) == 8
        assert (line["error"], line["attribution"]) == (None, "engine")


def test_every_request_is_as_the_simulator_foresaw(measure: Callable[..., Run], plain: Run) -> None:
    assert compare(plain) == Agreement("engine", True, 24, ())
    assert [line["prediction"]["host"] for line in plain.passes] == [0, 0, 0, 0, 448, 220]
    many = measure(docs=7, passes="sequential,zipf:0.8,shuffle", reuse=0.6, overlap=0.3, question="vary", host_tokens=300)
    assert compare(many) == Agreement("engine", True, 42, ())


def test_overlapping_requests_are_estimated_and_a_difference_is_no_fault(measure: Callable[..., Run]) -> None:
    agreement = compare(measure(concurrency=3, passes="sequential,reverse"))
    assert agreement is not None
    assert (agreement.exact, agreement.requests) == (False, 16)


def test_a_hit_that_nobody_foresaw_is_not_to_be_trusted(plain: Run) -> None:
    lost = {"cached_tokens_host": 0, "computed_tokens": PROMPT}
    requests = [line | (lost if line["request_id"] == "cpu-r0-p1-2" else {}) for line in plain.requests]
    assert validity.reasons(ExperimentView(replace(plain, requests=requests))) == [
        "hits differ from the prediction (profile engine) in 1 of 24 requests "
        "(the first, cpu-r0-p1-2: device, host, computed 0 + 0 + 114, predicted 0 + 112 + 2)"
    ]


def test_times_follow_each_other_on_one_clock(plain: Run) -> None:
    for line in plain.requests:
        times = [line["sent_s"], *line["token_times_s"], line["end_s"]]
        assert times == sorted(times)
        assert (line["first_token_s"], line["last_token_s"]) == (line["token_times_s"][0], line["token_times_s"][-1])
        assert line["ttft_ms"] == (line["first_token_s"] - line["sent_s"]) * 1e3
        assert line["restore_ms"] + line["compute_ms"] <= line["ttft_ms"]
        assert (line["restore_ms"] > 0) == (line["cached_tokens_host"] > 0)
    ends = [line["end_s"] for line in plain.requests]
    assert ends == sorted(ends)
    assert all(following["sent_s"] >= line["end_s"] for line, following in zip(plain.requests, plain.requests[1:], strict=False))


def test_passes_add_up(plain: Run) -> None:
    for line in plain.passes:
        requests = [item for item in plain.requests if (item["arm"], item["pass"]) == (line["arm"], line["pass"])]
        grown = {name: line["counters_after"][name] - line["counters_before"][name] for name in line["counters_after"]}
        assert line["requests"] == len(requests) == 4
        assert line["wall_s"] == requests[-1]["last_token_s"] - requests[0]["sent_s"]
        assert grown["device_hit_tokens"] == sum(item["cached_tokens_device"] for item in requests)
        assert grown["host_hit_tokens"] == line["loaded_tokens"] == sum(item["cached_tokens_host"] for item in requests)
        assert grown["computed_tokens"] == sum(item["computed_tokens"] + 7 for item in requests)  # the last output token is no input
        assert 0 < line["peak_pool_tokens"] <= 256


def test_events_tell_the_story(plain: Run) -> None:
    events = [json.loads(line) for line in (plain.path / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert {"admit", "store", "load", "evict", "finish"} <= set(kinds)
    assert kinds.count("finish") == kinds.count("admit") == 24
    assert sum(event["tokens"] for event in events if event["event"] == "load") == 448 + 220


def test_arms_take_turns_in_going_first(measure: Callable[..., Run]) -> None:
    run = measure(repeats=3, docs=2, doc_tokens=20, kv_tokens=64, output_tokens=2, passes="sequential")
    assert [(line["repeat"], line["arm"]) for line in run.passes] == [
        (0, "none"), (0, "cpu"), (1, "cpu"), (1, "none"), (2, "none"), (2, "cpu"),
    ]  # fmt: skip
    assert [line["cached_tokens_device"] + line["cached_tokens_host"] for line in run.requests] == [0] * 12  # each arm starts cold


class Notes(Watcher):
    """What the session says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(
    ("given", "seconds", "repeats", "told"),
    [
        ({}, 120, 3, []),
        ({}, 0, 1, ["1 of 3 repeats, as more would take above 0 s (--repeats 3)"]),
        ({"repeats": 2}, 0, 2, []),
        ({"experiment": "cyclic"}, 120, 1, []),
    ],
)
def test_auto_repeats_as_often_as_two_minutes_hold(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], seconds: float, repeats: int, told: list[str]
) -> None:
    monkeypatch.setattr(session, "MOST_AUTO_S", seconds)
    sizes = {"experiment": "pressure", "requests": 2, "prompt_tokens": 8, "output_tokens": 4, "arm": "ample,recompute"}
    sizes = {"experiment": "cyclic", **SIZES} if given.get("experiment") == "cyclic" else sizes
    notes = Notes()
    session.run(load_config(None, {"model": str(small_model), **sizes, **given}), tmp_path / "run", notes, ["kvbench", "run"])
    run = read_run(tmp_path / "run")
    assert {line["repeat"] for line in run.passes} == set(range(repeats))
    assert run.manifest["config"]["repeats"] == repeats
    assert [text for text in notes.said if "repeat" in text] == told


@pytest.mark.parametrize("given", [{"concurrency": 3}, {"concurrency": 3, "max_batch_tokens": 7}])
def test_several_requests_at_once(measure: Callable[..., Run], given: dict[str, Any]) -> None:
    run = measure(output_tokens=5, passes="sequential,repeat", **given)
    assert {(line["arm"], line["pass"], line["doc_id"]) for line in run.requests} == {
        (arm, name, doc) for arm in ("none", "cpu") for name in ("sequential", "repeat") for doc in range(4)
    }
    assert len(run.requests) == 16
    for line in run.requests:
        assert line["cached_tokens_device"] + line["cached_tokens_host"] + line["computed_tokens"] == PROMPT
        assert line["output_tokens"] == 5
        assert line["compute_ms"] is None  # a step's time is shared with the others
    assert any(one["end_s"] > two["sent_s"] for one, two in zip(run.requests, run.requests[1:], strict=False))
    assert "concurrency 3" in summarise(run).title


def test_a_shortage_preempts_and_every_token_is_delivered_once(measure: Callable[..., Run]) -> None:
    run = measure(concurrency=2, kv_tokens=240, output_tokens=20, passes="sequential")  # two prompts fit, their outputs do not
    assert sum(line["preemptions"] for line in run.requests) > 0
    for line in run.requests:
        assert line["output_tokens"] == len(line["token_times_s"]) == 20
        assert line["token_times_s"] == sorted(set(line["token_times_s"]))
        assert line["cached_tokens_device"] + line["cached_tokens_host"] == 0  # what comes back after a preemption is no hit
        assert len(line["stalls"]) <= line["preemptions"]
        for stall in line["stalls"]:
            parts = ("waiting", "restoring", "recomputing", "first_step")
            assert sum(stall[f"{part}_ms"] for part in parts) == pytest.approx(stall["total_ms"])


@pytest.mark.parametrize(
    ("host_tokens", "note"),
    [
        (0, "the cpu tier has size zero and stores nothing"),
        (15, "the cpu tier (15) is smaller than one chunk (16) and stores nothing"),
        (16, "the cpu tier (16) is smaller than the longest document (100)"),
        (64, "the cpu tier (64) is smaller than the longest document (100)"),
        (256, "the cpu tier (256) is smaller than the working set (400)"),
    ],
)
def test_a_tier_too_small_is_said_and_harms_nothing(measure: Callable[..., Run], host_tokens: int, note: str) -> None:
    run = measure(host_tokens=host_tokens, passes="sequential,repeat", output_tokens=2)
    assert run.manifest["capacity"]["host_tokens"]["cpu"] == host_tokens
    assert note in notes_of(run)
    assert [row[2:] for row in tokens_by_pass(run)] == [(0, 0, 456)] * 4
    stored = [line["stored_tokens"] for line in run.passes if line["arm"] == "cpu"]
    assert stored == ([448, 448] if host_tokens >= 16 else [0, 0])


def test_a_working_set_that_fits_is_said(measure: Callable[..., Run]) -> None:
    run = measure(kv_tokens=1024, output_tokens=2)
    assert "fits: the working set (400) fits the pool (1,024): no tier can show here" in notes_of(run)
    assert [row[2] for row in tokens_by_pass(run)] == [0, 448, 448] * 2


def test_documents_with_a_common_head_hit_it_in_the_first_pass(measure: Callable[..., Run]) -> None:
    run = measure(overlap=0.5, passes="sequential", output_tokens=2)
    assert [line["cached_tokens_device"] for line in run.requests if line["arm"] == "none"] == [0, 48, 48, 48]


def test_the_question_is_part_of_what_is_found(measure: Callable[..., Run]) -> None:
    run = measure(question="vary", kv_tokens=1024, output_tokens=2)
    assert [row[2] for row in tokens_by_pass(run)] == [0, 400, 400] * 2  # the documents, and nothing of another question


def test_own_documents_in_the_order_of_their_names(small_model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for name, length in (("b", 50), ("a", 20), ("c", 90)):
        (texts / f"{name}.txt").write_text(" ".join(f"w{ord(name) + place % 20}" for place in range(length)))
    given = {name: value for name, value in SIZES.items() if not name.startswith("doc")}
    config = load_config(None, {"model": str(small_model), "documents": texts, **given, "kv_tokens": 128})
    run = read_run(session.run(config, tmp_path / "run", Watcher(), []).path)
    assert run.manifest["workload"]["document_names"] == ["a.txt", "b.txt", "c.txt"]
    assert [line["prompt_tokens"] for line in run.requests if line["arm"] == "none" and line["pass_index"] == 0] == [34, 64, 104]
    assert [row.document for row in summarise(run, per_document=True).documents or ()][:3] == ["a.txt", "b.txt", "c.txt"]


# Stopped half-way.


class Stops(Watcher):
    """A watcher that stops the run after some requests, as Ctrl-C between two of them would."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.left, self.error = after, error

    def request_ended(self, record: RequestRecord) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.mark.parametrize("after", [1, 7, 24])
def test_an_interrupted_run_keeps_what_was_measured(small_model: Path, tmp_path: Path, after: int) -> None:
    config = load_config(None, {"model": str(small_model), **SIZES})
    with pytest.raises(Interrupted, match="what was measured is in") as caught:
        session.run(config, tmp_path / "run", Stops(after, KeyboardInterrupt()), [])
    assert caught.value.exit_code == 130
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], run.manifest["reasons"]) == ("interrupted", ["stopped by the user"])
    assert (len(run.requests), len(run.passes), run.skipped) == (after, (after - 1) // 4, [])
    assert f"interrupted after {after} of 24 requests" in notes_of(run)


def test_ctrl_c_through_the_command(small_model: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "watcher", lambda quiet: Stops(6, KeyboardInterrupt()))
    assert main(["run", *arguments(small_model), "--out", str(tmp_path / "run")]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"kvbench: error: interrupted; what was measured is in {tmp_path}/run (kvbench report {tmp_path}/run)\n"
    assert main(["report", str(tmp_path / "run")]) == 0
    report = capsys.readouterr().out
    assert "none  sequential  4" in report
    assert "note: interrupted after 6 of 24 requests: stopped by the user" in report


def test_an_error_half_way_keeps_what_was_measured(small_model: Path, tmp_path: Path) -> None:
    config = load_config(None, {"model": str(small_model), **SIZES})
    with pytest.raises(OutOfMemory, match="no more; what was measured is in"):
        session.run(config, tmp_path / "run", Stops(5, OutOfMemory("no more")), [])
    assert read_run(tmp_path / "run").manifest["status"] == "interrupted"
    assert len(read_run(tmp_path / "run").requests) == 5


def test_an_error_nobody_expected_keeps_what_was_measured(small_model: Path, tmp_path: Path) -> None:
    config = load_config(None, {"model": str(small_model), **SIZES})
    with pytest.raises(ZeroDivisionError):
        session.run(config, tmp_path / "run", Stops(5, ZeroDivisionError()), [])
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], len(run.requests)) == ("interrupted", 5)


@pytest.mark.parametrize(("error", "raised"), [(KeyboardInterrupt(), Interrupted), (ZeroDivisionError(), ZeroDivisionError)], ids=repr)
def test_a_run_stopped_while_it_is_judged_does_not_stay_running(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    def judge(path: Path) -> list[str]:
        raise error

    monkeypatch.setattr(session, "_check", judge)
    with pytest.raises(raised):
        session.run(load_config(None, {"model": str(small_model), **SIZES}), tmp_path / "run", Watcher(), [])
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], len(run.requests)) == ("interrupted", 24)


def test_chunks_that_are_not_whole_blocks_of_a_server_are_refused_before_anything_is_measured(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that chooses the size of its blocks: the configuration could not tell."""
    backends: list[EngineBackend] = []
    made = RUNNERS["engine"].make_backend

    def of_other_blocks(*given: Any) -> EngineBackend:
        backend = made(*given)
        assert isinstance(backend, EngineBackend)
        backend.capacity = replace(backend.capacity, block_size=12)
        backends.append(backend)
        return backend

    monkeypatch.setitem(RUNNERS, "engine", RunnerKind(RUNNERS["engine"].options, of_other_blocks))
    started: list[str] = []
    monkeypatch.setattr(EngineBackend, "start", lambda self, *given: started.append("started"))
    with pytest.raises(UsageError, match="--chunk-tokens 16 is not a multiple of the pool's block size, 12"):
        session.run(load_config(None, {"model": str(small_model), **SIZES}), tmp_path / "run", Watcher(), [])
    assert (len(backends), started, (tmp_path / "run").exists()) == (1, [], False)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutOfMemory("no more"), ZeroDivisionError()], ids=repr)
def test_an_error_before_the_first_request_leaves_no_folder(small_model: Path, tmp_path: Path, error: BaseException) -> None:
    class StopsBefore(Watcher):
        def started(self, requests: int) -> None:
            raise error

    config = load_config(None, {"model": str(small_model), **SIZES})
    with pytest.raises(Interrupted if isinstance(error, KeyboardInterrupt) else type(error)):
        session.run(config, tmp_path / "run", StopsBefore(), [])
    assert list(tmp_path.iterdir()) == []


def available(monkeypatch: pytest.MonkeyPatch, kib: int) -> None:
    """Make psutil say that so much memory is free."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=kib * 1024, available=kib * 1024))


def test_too_little_memory_for_the_weights(small_model: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    available(monkeypatch, 1)
    assert main(["run", *arguments(small_model), "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("kvbench: error: weights ")
    assert "exceed the 0.00 GiB that are free on cpu; lower --kv-tokens" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_for_the_tier(small_model: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    available(monkeypatch, 150)  # KiB: weights 84, pool 64, tier 112
    assert main(["run", *arguments(small_model), "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("kvbench: error: device pool 0.00 GiB + host tier 0.00 GiB exceed ")
    assert error.count("\n") == 1


# Signals, for real.


@pytest.fixture
def endless(small_model: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that would take for ever, started and past its first request."""
    # A shell that runs its tests in the background has SIGINT ignored, and its children inherit that.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from kvbench.cli.main import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "run", *arguments(small_model), "--repeats", "1000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        requests, deadline = tmp_path / "run" / "requests.jsonl", time.monotonic() + 120
        while not (requests.exists() and requests.stat().st_size):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_stops_the_run_and_loses_nothing(endless: subprocess.Popen[str], tmp_path: Path, capsys: Captured, name: str) -> None:
    endless.send_signal(getattr(signal, name))
    out, error = endless.communicate(timeout=60)
    assert (endless.returncode, out) == (130, "")
    told = f"kvbench: error: interrupted; what was measured is in {tmp_path}/run (kvbench report {tmp_path}/run)"
    assert [line for line in error.splitlines() if " requests done" not in line and not line.endswith(" so far")] == [told]
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "interrupted"
    assert run.requests
    assert run.skipped == []
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "of 24,000 requests: stopped by the user" in " ".join(capsys.readouterr().out.split())


def test_several_levels_of_concurrency_are_runs_of_their_own(small_model: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["run", *arguments(small_model, concurrency="1,3"), "--out", str(tmp_path / "levels"), "--quiet"]
    assert main(words) == 0
    runs = [read_run(tmp_path / "levels" / f"concurrency-{level}") for level in (1, 3)]
    assert [run.manifest["config"]["concurrency"] for run in runs] == [1, 3]
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert [[word for word in line.split() if word != "*"][:3] for line in table[2:]] == [
        [level, arm, name] for level in ("1", "3") for arm in ("none", "cpu") for name in ("sequential", "repeat", "reverse")
    ]
