"""Whole runs that start their own servers, which are the fake ones here: what is kept, and that nothing outlives a run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.main import main
from kvbench.runs.run_folder import read_run
from tests.runners.servers.lives import MARK, all_gone, fake_python

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "dtype": "bfloat16",
}
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Of a run on one arm that starts a fake server; its folder is ``run``."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    python = fake_python(tmp_path, "fake_serving.py")
    words = ["run", "--runner", "vllm", "--vllm-python", str(python), "--model", str(model), "--tier", "none", "--quiet"]
    return [
        *words,
        "--docs",
        "4",
        "--doc-tokens",
        "600",
        "--output-tokens",
        "4",
        "--out",
        str(tmp_path / "run"),
        "--env",
        f"{MARK}={mark(tmp_path)}",
    ]


def mark(folder: Path) -> str:
    return f"run-{os.getpid()}-{folder.name}"


def with_script(script: str) -> list[str]:
    return ["--env", f"FAKE_SCRIPT={script}"]


@contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """kvbench in a process of its own; ended at the latest with the block."""
    process = subprocess.Popen([sys.executable, "-m", "kvbench", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished_requests(folder: Path) -> list[dict[str, Any]]:
    file = folder / "requests.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def await_requests(folder: Path, count: int) -> None:
    await_that(lambda: len(finished_requests(folder)) >= count)


def await_arrivals(file: Path, count: int) -> None:
    await_that(lambda: len(arrived(file)) >= count)


def await_that(holds: Callable[[], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "the run did not get so far"
        time.sleep(0.01)


def arrived(file: Path) -> list[str]:
    """Ids of the workload's requests that the server has seen, in order; without the warm-up's."""
    ids = file.read_text().splitlines() if file.exists() else []
    return [request_id for request_id in ids if not request_id.startswith("warm-up")]


@pytest.mark.parametrize("sizes", [[], ["--kv-tokens", "1600", "--block-size", "16"]], ids=["the server's pool", "a given pool"])
def test_a_run_is_as_foreseen_says_how_it_served_and_leaves_nobody(
    tmp_path: Path, arguments: list[str], sizes: list[str], capsys: Captured
) -> None:
    assert main([*arguments, *sizes]) == 0
    run = read_run(tmp_path / "run")
    assert run.manifest["capacity"]["device_tokens"] == 1600
    assert "tokens by tier of 12 of 12 requests" in capsys.readouterr().out
    arm = run.manifest["arms"][0]
    assert arm["command"]["vllm"]["command"][1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert (tmp_path / "run" / arm["command"]["vllm"]["log"]).exists()
    assert all_gone(mark(tmp_path), 0)


def test_a_prefix_cache_that_is_turned_off_is_no_fault_and_named(tmp_path: Path, arguments: list[str], capsys: Captured) -> None:
    assert main([*arguments, "--vllm-arg=--no-enable-prefix-caching"]) == 0
    assert "hits are not predicted: --vllm-arg=--no-enable-prefix-caching turns" in " ".join(capsys.readouterr().out.split())
    assert {line["cached_tokens_device"] for line in read_run(tmp_path / "run").requests} == {0}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--tier", "none,native"], 1, "--tier native: vLLM's own offloading to host memory needs a GPU"),
        (["--tier", "none,redis"], 2, "--tier redis needs the address of a Redis server"),
        (["--tier", "none,redis", "--redis", "redis://127.0.0.1:1"], 1, "--redis 127.0.0.1:1: nobody listens there"),
        (["--tier", "none,disk"], 2, "--tier disk needs a folder for its files"),
        (["--tier", "none,disk", "--disk", "model/config.json/files"], 2, "files: cannot be written"),
    ],
)
def test_every_arm_is_checked_before_the_first_server_starts(
    tmp_path: Path, arguments: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, message: str
) -> None:
    monkeypatch.setenv("FAKE_LMCACHE", "0.5.6")
    monkeypatch.chdir(tmp_path)
    place = arguments.index("--tier")
    words = [*arguments[:place], *arguments[place + 2 :], "--env", f"FAKE_ARRIVALS={tmp_path / 'arrivals'}"]
    assert main([*words, *options]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "arrivals").exists()


def test_each_repeat_has_a_fresh_server(tmp_path: Path, arguments: list[str], capsys: Captured) -> None:
    assert main([*arguments, "--repeats", "2"]) == 0
    run = read_run(tmp_path / "run")
    starts = [line["counters_before"]["server_started_ms"] for line in run.passes if line["pass"] == "sequential"]
    assert len(set(starts)) == 2
    assert [line["cached_tokens_device"] for line in run.passes] == [0, 0, 1568] * 2
    assert {log.name for log in (tmp_path / "run").glob("*.log")} == {"server-none-r0.log", "server-none-r1.log"}


def test_the_documents_are_2_3_times_the_pool_unless_told(tmp_path: Path, arguments: list[str], capsys: Captured) -> None:
    place = arguments.index("--docs")
    assert main(arguments[:place] + arguments[place + 2 :]) == 0
    manifest = read_run(tmp_path / "run").manifest
    assert manifest["workload"]["documents"] == 7  # 2.3 · 1,600 ÷ 600, rounded up
    assert manifest["working_set_ratio"] == pytest.approx(4200 / 1600)


def test_a_server_that_dies_in_mid_pass_ends_the_run_and_keeps_it(tmp_path: Path, arguments: list[str], capsys: Captured) -> None:
    assert main([*arguments, *with_script("--fault die --fault-from 7 --fault-after 2")]) == 1
    error = capsys.readouterr().err
    assert "given up: the vLLM server ended with code 1" in error
    assert "what was measured is in" in error
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "interrupted"
    errors = [line["error"] and line["error"]["kind"] for line in run.requests]
    assert errors[:5] == [None] * 5
    assert errors[5] in ("closed", "stopped")
    assert all_gone(mark(tmp_path), 0)
    assert main(["report", str(tmp_path / "run")]) == 0


def test_a_server_that_does_not_start_says_why_and_leaves_its_log(tmp_path: Path, arguments: list[str], capsys: Captured) -> None:
    assert main([*arguments, *with_script("--no-such-option")]) == 1
    error = capsys.readouterr().err
    assert "unrecognized arguments: --no-such-option" in error
    assert (tmp_path / "run" / "server-none-r0.log").exists()
    assert all_gone(mark(tmp_path), 0)


def test_a_server_whose_capacity_cannot_be_read_is_stopped(tmp_path: Path, arguments: list[str], capsys: Captured) -> None:
    assert main([*arguments, *with_script("--api-key x")]) == 1
    assert "/v1/models: answered 401" in capsys.readouterr().err
    assert all_gone(mark(tmp_path), 0)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_keeps_what_it_measured_and_stops_its_server(
    tmp_path: Path, arguments: list[str], signal_number: int
) -> None:
    with running([*arguments, *with_script("--first-token-s 0.2")]) as process:
        await_requests(tmp_path / "run", 2)
        process.send_signal(signal_number)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.startswith("kvbench: error: interrupted")
    assert read_run(tmp_path / "run").manifest["status"] == "interrupted"
    assert all_gone(mark(tmp_path), 0)


def test_killed_at_random_moments_nothing_survives_and_everything_finished_is_on_disk(tmp_path: Path, arguments: list[str]) -> None:
    moments = random.Random(0)
    for number in range(10):
        folder, arrivals = tmp_path / f"run-{number}", tmp_path / f"arrivals-{number}"
        words = [*arguments, "--out", str(folder), *with_script("--first-token-s 0.02"), "--env", f"FAKE_ARRIVALS={arrivals}"]
        wanted = moments.randrange(0, 12)
        with running(words) as process:
            await_arrivals(arrivals, wanted)
            time.sleep(moments.random() * 0.05)  # any moment will do
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)
        assert all_gone(mark(tmp_path))
        sent = arrived(arrivals)
        assert len(sent) >= wanted
        if folder.exists():
            kept = [request["request_id"] for request in read_run(folder).requests]
            assert kept in (sent, sent[:-1])  # at concurrency 1 all but the last had ended
            assert main(["report", str(folder)]) == 0
        else:
            assert sent == []
