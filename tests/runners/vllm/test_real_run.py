"""`kvbench run` on real vLLM and LMCache servers that it starts, with the tiny model: the counts the design works out, every tier, a dead
one, preemption. One start takes the better part of a minute, so each test is a whole story."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli import progress
from kvbench.cli.main import main
from kvbench.runners.http.admin_api import open_client
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.servers.server import free_ports
from kvbench.runners.vllm.installation import find_python, inspect
from kvbench.runners.vllm.lmcache import clear
from kvbench.runners.vllm.model import shape_folder
from kvbench.runs.records import RequestRecord
from kvbench.runs.run_folder import read_manifest, read_run
from kvbench.session.watcher import Watcher
from kvbench.summary.summary import summarise
from tests.runners.servers.lives import MARK, all_gone
from tests.runners.vllm.real_servers import NO_PYTHON, PYTHON, Served

pytestmark = [pytest.mark.real_vllm, pytest.mark.skipif(not PYTHON, reason=NO_PYTHON)]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))  # written once for all tests


def mark() -> str:
    return f"real-run-{os.getpid()}"


def on_cpu() -> bool:
    return inspect(find_python(Path(PYTHON or ""))).device == "cpu"


POOL = ["--kv-tokens", "3072", "--block-size", "32"]
SHORT = ["--docs", "3", "--doc-tokens", "1500"]


def run(out: Path, *options: str, experiment: str = "cyclic", pool: list[str] = POOL) -> int:
    server = ["--runner", "vllm", "--vllm-python", str(PYTHON), *pool, "--env", f"{MARK}={mark()}"]
    return main(["run", experiment, *server, *options, "--quiet", "--out", str(out)])


def test_pool_and_tier_hit_exactly_what_the_simulator_foresees(tmp_path: Path, capsys: Captured) -> None:
    code = run(tmp_path / "run", "--tier", "none,cpu", "--docs", "4", "--doc-tokens", "2000", "--question-tokens", "3")
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "Predicted by the simulator, profile vllm: tokens by tier of 24 of 24 requests\nare as predicted." in printed.out
    rows = [(row.arm, row.pass_name, row.device, row.host, row.computed) for row in summarise(read_run(tmp_path / "run")).passes]
    # 95 usable blocks hold the last document, and of the one before 32 blocks; a tier has 7 chunks of 256 of each.
    assert rows == [
        ("none", "sequential", 0, 0, 8012), ("none", "repeat", 0, 0, 8012), ("none", "reverse", 1984 + 1024, 0, 5004),
        ("cpu", "sequential", 0, 0, 8012), ("cpu", "repeat", 0, 4 * 1792, 844), ("cpu", "reverse", 3008, 768 + 2 * 1792, 652),
    ]  # fmt: skip
    assert all_gone(mark(), 0)


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis server of one's own, in memory only; gives its address."""
    port = free_ports(1)[0]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--requirepass", "geheim", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"redis://:geheim@127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class Forgetful(Watcher):
    """Empties host memory before each pass but the first, so that what a pass finds comes from the tier behind it."""

    def __init__(self, out: Path, disk: Path) -> None:
        self._out, self._disk = out, disk
        self.files: list[int] = []
        self.found: list[tuple[str, int]] = []

    def pass_started(self, arm: str, repeat: int, pass_name: str) -> None:
        if pass_name != "sequential":
            with open_client() as client:
                clear(client, self._address(arm, "lmcache", "--http-port"))
        if (arm, pass_name) == ("disk", "repeat"):
            self.files = [file.stat().st_size for file in self._disk.rglob("*") if file.is_file()]

    def request_ended(self, record: RequestRecord) -> None:
        """After the last request of all: what a Redis server keeps under one salt is found under that one only."""
        if (record.key.arm, record.key.pass_name, record.key.position) != ("redis", "repeat", 3):
            return
        redis = Served("redis", self._out, told=f"Address:   {self._address('redis', 'vllm', '--port')}/v1,\n")
        lmcache = self._address("redis", "lmcache", "--http-port")
        redis.told += f"LMCache:   {lmcache}/status\n"
        with redis.http() as client:
            for salt in ("one", "two", "one"):
                KIND.reset(client, redis.url)
                clear(client, lmcache)
                self.found.append((salt, redis.read_all(client, 1, 2003, cache_salt=salt)[0]["external_hits"]))

    def _address(self, arm: str, server: str, option: str) -> str:
        arms = read_manifest(self._out)["arms"]
        command: list[str] = next(item for item in arms if item["name"] == arm)["command"][server]["command"]
        return "http://127.0.0.1:" + next(word.partition("=")[2] for word in command if word.startswith(f"{option}="))


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed (Debian's package redis-server)")
def test_the_tiers_behind_host_memory_give_what_that_has_lost(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four documents of 7 whole chunks. Host memory evicts from 27 chunks on, so no number of chunks in it is awaited."""
    watcher = Forgetful(tmp_path / "run", tmp_path / "disk")
    monkeypatch.setattr(progress, "watcher", lambda quiet: watcher)
    sizes = ["--docs", "4", "--doc-tokens", "2000", "--question-tokens", "3", "--host-tokens", str(34 * 256), "--chunk-tokens", "256"]
    with redis_server(tmp_path) as address:
        tiers = ["--tier", "disk,redis", "--disk", str(tmp_path / "disk"), "--redis", address]
        code = run(tmp_path / "run", *tiers, *sizes, "--passes", "sequential,repeat", "--dtype", "bfloat16")
    assert code == 0, capsys.readouterr().err
    found = read_run(tmp_path / "run")
    rows = [(row.arm, row.pass_name, row.device, row.host, row.computed) for row in summarise(found).passes]
    assert rows == [
        row for arm in ("disk", "redis") for row in ((arm, "sequential", 0, 0, 8012), (arm, "repeat", 0, 4 * 1792, 8012 - 4 * 1792))
    ]
    counted = {(line["arm"], line["pass"]): line["counters_after"] for line in found.passes}
    for arm in ("disk", "redis"):
        assert [counted[arm, name].get("lmcache_hit_tokens_l2", 0) for name in ("sequential", "repeat")] == [0, 4 * 1792]
    assert watcher.files == [256 * 4096] * (4 + 1) * 7  # the warm-up is there too: LMCache cannot empty it
    assert watcher.found == [("one", 0), ("two", 0), ("one", 1792)]
    assert list((tmp_path / "disk").iterdir()) == []
    assert "geheim" not in (tmp_path / "run" / "manifest.json").read_text()
    assert all_gone(mark(), 0)


def test_a_tier_that_fails_inside_a_healthy_server_is_not_to_be_trusted(tmp_path: Path, capsys: Captured) -> None:
    if not on_cpu():
        pytest.skip("LMCache works inside a vLLM on a GPU")
    sizes = ["--passes", "sequential,repeat", *SHORT, "--host-gib", "0.25"]
    assert run(tmp_path / "run", "--tier", "lmcache-inproc", *sizes) == 4
    error = capsys.readouterr().err
    assert "the lmcache-inproc tier (" in error
    assert "gave nothing to pass 1 (repeat), although it must" in error
    assert "a server's log says: RuntimeError: No supported cpu connector found." in error
    assert all_gone(mark(), 0)


def test_a_tier_for_a_gpu_is_refused_on_a_cpu(tmp_path: Path, capsys: Captured) -> None:
    if not on_cpu():
        pytest.skip("there is a GPU")
    assert run(tmp_path / "run", "--tier", "native", *SHORT) == 1
    assert "--tier native: vLLM's own offloading to host memory needs a GPU, and vLLM " in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_trace_is_replayed_on_a_model_of_the_hubs_cache_in_the_pool_that_the_server_finds(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt of 319 tokens that comes again. Blocks of vLLM's own size on a CPU, 128: two of them are full."""
    snapshot = tmp_path / "hub" / "models--kvbench--tiny" / "snapshots" / "0123456789"
    shutil.copytree(shape_folder("tiny", find_python(Path(PYTHON or ""))), snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(snapshot.name)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    lines = [{"timestamp": 1000 * at, "input_length": 319, "output_length": 3, "hash_ids": ids} for at, ids in enumerate(([1], [2], [1]))]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = ["--model", "kvbench/tiny", "--vllm-arg=--max-model-len=2048", "--vllm-arg=--api-key=geheim", "--startup-timeout", "600"]
    trace = [
        "--tier",
        "none",
        "--trace",
        str(tmp_path / "trace.jsonl"),
        *shlex.split("--speedup 2 --trace-block-size 512 --output-tokens 4"),
    ]
    assert run(tmp_path / "run", *model, *trace, experiment="trace", pool=[]) == 0, capsys.readouterr().err
    found = read_run(tmp_path / "run")
    start = found.requests[0]["scheduled_s"]
    assert [round(line["scheduled_s"] - start, 6) for line in found.requests] == [0, 0.5, 1]
    assert [line["output_tokens"] for line in found.requests] == [4] * 3
    block = found.manifest["capacity"]["block_size"]
    assert [line["cached_tokens_device"] for line in found.requests] == [0, 0, 318 // block * block]
    assert found.manifest["capacity"]["device_tokens"] > 100_000  # 1 GiB
    manifest: dict[str, Any] = found.manifest
    assert manifest["model"]["name"] == "kvbench/tiny"
    assert "geheim" not in json.dumps(manifest)
    assert all_gone(mark(), 0)


def test_a_server_that_is_not_ready_in_time_is_stopped(tmp_path: Path, capsys: Captured) -> None:
    assert run(tmp_path / "run", "--tier", "none", *SHORT, "--startup-timeout", "0.5") == 1
    assert "the vLLM server did not answer within 0.5 s (--startup-timeout)" in capsys.readouterr().err
    assert all_gone(mark(), 0)


def test_a_death_at_start_is_explained(tmp_path: Path, capsys: Captured) -> None:
    if not on_cpu():
        pytest.skip("a GPU takes blocks of 16")
    assert run(tmp_path / "run", "--tier", "none", *SHORT, pool=["--kv-tokens", "3072", "--block-size", "16"]) == 1
    error = capsys.readouterr().err
    assert "the vLLM server did not start: it ended with code 1: " in error
    assert "No common block size for 16" in error
    assert "--block-size 32" in error
    assert all_gone(mark(), 0)


def test_pressure_preempts_where_the_pool_is_short_and_changes_no_token(tmp_path: Path, capsys: Captured) -> None:
    """Twelve of 200 + 100 tokens, 10 blocks of 32 each at their end, where 95 blocks hold nine. In float32: no batch changes one."""
    workload = ["--requests", "12", "--prompt-tokens", "200", "--output-tokens", "100", "--dtype", "float32"]
    assert run(tmp_path / "run", *workload, "--repeats", "1", experiment="pressure") == 0
    ample, recompute = summarise(read_run(tmp_path / "run")).rows["pressure"]
    assert (ample.arm, ample.pool_tokens, ample.preemptions) == ("ample", 121 * 32, 0)
    assert (recompute.arm, recompute.pool_tokens) == ("recompute", 3072)
    assert recompute.preemptions is not None
    assert recompute.preemptions > 0
    assert (recompute.finished, recompute.same_outputs, recompute.compared_outputs) == (12, 12, 12)
    assert "Preemptions on recompute: " in capsys.readouterr().out
    assert all_gone(mark(), 0)
