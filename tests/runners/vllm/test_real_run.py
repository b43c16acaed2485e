"""`kvbench run` on real vLLM and LMCache servers with the tiny model: the counts the design works out, a dead tier, and preemption."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvbench.analysis.stalls import stalls_of
from kvbench.cli.main import main
from kvbench.runners.base import Clock, ClosedLoop, ListSource, Request
from kvbench.runners.http.admin_api import open_client
from kvbench.runners.http.client import Client
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm.arm_servers import ArmServers
from kvbench.runners.vllm.installation import find_python, inspect
from kvbench.runners.vllm.options import ServerOptions
from kvbench.runners.vllm.tiny_model import shape_folder
from kvbench.runs.records import RequestKey
from kvbench.runs.run_folder import read_run
from kvbench.summary.summary import summarise
from kvbench.workloads.draws import Draws
from tests.runners.servers.lives import MARK, all_gone

PYTHON = os.environ.get("KVBENCH_VLLM_PYTHON")

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(not PYTHON, reason="KVBENCH_VLLM_PYTHON names no interpreter with vLLM (scripts/vllm-environment makes one)"),
]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))  # written once for all tests


def mark() -> str:
    return f"real-run-{os.getpid()}"


def run(out: Path, *options: str) -> int:
    server = ["--runner", "vllm", "--vllm-python", str(PYTHON), "--kv-tokens", "3072", "--block-size", "32", "--env", f"{MARK}={mark()}"]
    return main(["run", *server, *options, "--quiet", "--out", str(out)])


def test_pool_and_tier_hit_exactly_what_the_simulator_foresees(tmp_path: Path, capsys: Captured) -> None:
    code = run(tmp_path / "run", "--docs", "4", "--doc-tokens", "2000", "--question-tokens", "3")
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "Predicted by the simulator, profile vllm: tokens by tier of 24 of 24 requests\nare as foreseen." in printed.out
    rows = [(row.arm, row.pass_name, row.device, row.host, row.computed) for row in summarise(read_run(tmp_path / "run")).passes]
    # 95 usable blocks hold the last document, and of the one before 32 blocks; a tier has 7 chunks of 256 of each.
    assert rows == [
        ("none", "sequential", 0, 0, 8012), ("none", "repeat", 0, 0, 8012), ("none", "reverse", 1984 + 1024, 0, 5004),
        ("cpu", "sequential", 0, 0, 8012), ("cpu", "repeat", 0, 4 * 1792, 844), ("cpu", "reverse", 3008, 768 + 2 * 1792, 652),
    ]  # fmt: skip
    assert all_gone(mark(), 0)


def test_a_tier_that_fails_inside_a_healthy_server_is_not_to_be_trusted(tmp_path: Path, capsys: Captured) -> None:
    if inspect(find_python(Path(PYTHON or ""))).device != "cpu":
        pytest.skip("LMCache works inside a vLLM on a GPU")
    passes = ["--passes", "sequential,repeat", "--docs", "3", "--doc-tokens", "1500"]
    assert run(tmp_path / "run", "--tier", "lmcache-inproc", *passes) == 4
    error = capsys.readouterr().err
    assert "the lmcache-inproc tier (" in error
    assert "gave nothing to pass 1 (repeat), although it must" in error
    assert "a server's log says: RuntimeError: No supported cpu connector found." in error
    assert all_gone(mark(), 0)


def test_requests_that_outgrow_the_pool_are_preempted_and_lose_no_token(tmp_path: Path, capsys: Captured) -> None:
    """Eight of 250 + 250 tokens, where 95 blocks of 32 hold six of them at the end. In float32, so that a batch changes no token."""
    requests = [
        Request(RequestKey("none", 0, "pass", 0, place, f"r{place}", place), Draws(0, "outgrow", place).integers(250, 0, 2048), 250)
        for place in range(8)
    ]
    installation = inspect(find_python(Path(PYTHON or "")))
    model = str(shape_folder("tiny", installation.python))
    options = ServerOptions(model, "float32", kv_tokens=3072, block_size=32, environment={MARK: mark()}, startup_s=600)

    def send(concurrency: int) -> dict[str, list[int] | None]:
        ended: dict[str, Exchange] = {}
        client.run(
            ListSource(requests), ClosedLoop(concurrency), lambda request, exchange: ended.update({request.key.request_id: exchange})
        )
        assert [exchange.error for exchange in ended.values()] == [None] * 8
        return {name: exchange.token_ids for name, exchange in ended.items()}

    with ArmServers("none", options, installation, tmp_path) as servers, open_client() as http:
        client = Client(servers.url, KIND.served_model(http, servers.url).name, Clock(), token_ids=True)
        crowded = send(8)
        preemptions = KIND.scrape(http, servers.url).counters["preemptions"]
        alone = send(1)
        assert KIND.scrape(http, servers.url).counters["preemptions"] == preemptions > 0
    assert crowded == alone
    assert all_gone(mark(), 0)


def test_a_run_shows_preemptions_by_the_counters_and_stalls_by_the_stream(tmp_path: Path, capsys: Captured) -> None:
    workload = ["--docs", "8", "--doc-tokens", "250", "--question-tokens", "0", "--output-tokens", "250", "--concurrency", "8"]
    assert run(tmp_path / "run", "--tier", "none", "--passes", "sequential", *workload) == 0
    found = stalls_of(read_run(tmp_path / "run"), "none")
    assert found is not None
    assert found.preemptions is not None
    assert found.preemptions > 0
    assert found.stalls <= found.preemptions
    assert f"Preemptions on none: {found.preemptions};" in capsys.readouterr().out
    assert all_gone(mark(), 0)


def test_pressure_preempts_where_the_pool_is_short_and_changes_no_token(tmp_path: Path, capsys: Captured) -> None:
    """Twelve of 200 + 100 tokens, 10 blocks of 32 each at their end, where 95 blocks hold nine. In float32, as above."""
    workload = ["--requests", "12", "--prompt-tokens", "200", "--output-tokens", "100", "--dtype", "float32"]
    assert run(tmp_path / "run", "pressure", *workload) == 0
    ample, recompute = summarise(read_run(tmp_path / "run")).rows["pressure"]
    assert (ample.arm, ample.pool_tokens, ample.preemptions) == ("ample", 121 * 32, 0)
    assert (recompute.arm, recompute.pool_tokens) == ("recompute", 3072)
    assert recompute.preemptions is not None
    assert recompute.preemptions > 0
    assert (recompute.finished, recompute.same_outputs, recompute.compared_outputs) == (12, 12, 12)
    assert "Preemptions on recompute: " in capsys.readouterr().out
    assert all_gone(mark(), 0)
