"""Real vLLM and LMCache servers with the tiny model: every tier comes up, counts, is awaited and reset, and leaves nothing.

Four documents of 2,003 tokens on a pool of 95 usable blocks of 32, which holds one and a half of them: read again in order, nothing is on
the device, and a tier has the 7 whole chunks of 256 of each. One start takes the better part of a minute, so each test is a whole story.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvbench.errors import RunFailed
from kvbench.runners.servers.counters import difference, scrape
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.servers.metric import ReportedPool
from kvbench.runners.servers.server import free_ports
from kvbench.runners.vllm.arm_servers import ArmServers
from kvbench.runners.vllm.installation import Installation, find_python, inspect
from kvbench.runners.vllm.lmcache_status import await_stores, clear
from kvbench.runners.vllm.metric_names import LMCACHE
from kvbench.runners.vllm.options import ServerOptions
from kvbench.runners.vllm.tiers import host_gib_for
from kvbench.runners.vllm.tiny_model import shape_folder
from kvbench.workloads.draws import Draws
from tests.runners.servers.lives import MARK, all_gone

PYTHON = os.environ.get("KVBENCH_VLLM_PYTHON")

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(not PYTHON, reason="KVBENCH_VLLM_PYTHON names no interpreter with vLLM (scripts/vllm-environment makes one)"),
]

DOCUMENTS, TOKENS, OUTPUT = 4, 2003, 8
CHUNKS, CHUNK, CHUNK_BYTES = 7, 256, 256 * 4096
STARTUP_S = 600.0


@pytest.fixture(scope="module")
def installation() -> Installation:
    return inspect(find_python(Path(PYTHON or "")))


@pytest.fixture(scope="module")
def options(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> ServerOptions:
    return ServerOptions(
        model=str(shape_folder("tiny", installation.python, tmp_path_factory.mktemp("cache"))),
        dtype="bfloat16",
        kv_tokens=3072,
        block_size=32,
        host_gib=host_gib_for(DOCUMENTS * CHUNKS * CHUNK_BYTES, CHUNK_BYTES),
        environment={MARK: f"real-{os.getpid()}"},
        startup_s=STARTUP_S,
    )


@dataclass(frozen=True, slots=True)
class Arm:
    """Running servers, and a client to send documents and read counters with."""

    servers: ArmServers
    client: httpx.Client
    model: str

    def read(self, document: int, **more: Any) -> dict[str, Any]:
        """Send one document; the server's whole answer."""
        prompt = Draws(0, "real server", document).integers(TOKENS, 0, 2048)
        asked = {"model": self.model, "prompt": prompt, "max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0}
        answer = self.client.post(f"{self.servers.url}/v1/completions", json={**asked, **more})
        answer.raise_for_status()
        content: dict[str, Any] = answer.json()
        assert content["usage"]["completion_tokens"] == OUTPUT
        return content

    def read_all(self, **more: Any) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Read every document in order: what was counted meanwhile, and the answers. Stores have landed when it returns."""
        before = KIND.scrape(self.client, self.servers.url).counters
        answers = [self.read(document, **more) for document in range(DOCUMENTS)]
        if self.servers.lmcache_url is not None:
            await_stores(self.client, self.servers.lmcache_url, 60)
        return difference(before, KIND.scrape(self.client, self.servers.url).counters), answers

    def lmcache_counters(self) -> dict[str, int]:
        return scrape(self.client, self.lmcache_url, LMCACHE).counters

    @property
    def lmcache_url(self) -> str:
        assert self.servers.lmcache_url is not None
        return self.servers.lmcache_url


@contextmanager
def running(tier: str, options: ServerOptions, installation: Installation, folder: Path) -> Iterator[Arm]:
    """The arm, and afterwards nothing of it."""
    with ArmServers(tier, options, installation, folder) as servers, httpx.Client(timeout=120, trust_env=False) as client:
        yield Arm(servers, client, KIND.served_model(client, servers.url).name)
        servers.check_alive()
    assert all_gone(options.environment[MARK], 0)


def prompt_counters(counted: dict[str, int]) -> tuple[int, int, int, int]:
    """Computed, from the device, from the tier; and their sum as vLLM counts it."""
    return tuple(counted[name] for name in ("prompt_tokens_computed", "prefix_hits", "external_hits", "prompt_tokens"))  # type: ignore[return-value]


ALL = DOCUMENTS * TOKENS
STORED = DOCUMENTS * CHUNKS * CHUNK


def test_no_tier(options: ServerOptions, installation: Installation, tmp_path: Path) -> None:
    with running("none", options, installation, tmp_path) as arm:
        assert installation.vllm is not None
        seen = KIND.served_model(arm.client, arm.servers.url)
        assert (seen.root, seen.max_tokens, seen.version) == (options.model, 95 * 32, installation.vllm)
        assert KIND.scrape(arm.client, arm.servers.url).capacity == ReportedPool(block_size=32, blocks=96, tokens=3072)
        for _ in range(2):
            counted, answers = arm.read_all()
            assert prompt_counters(counted) == (ALL, 0, 0, ALL)
            assert (counted["finished_length"], counted["output_tokens"]) == (DOCUMENTS, DOCUMENTS * OUTPUT)
            assert [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers] == [0] * DOCUMENTS
        last = 62 * 32  # its full blocks but the one of the last token
        assert arm.read(3)["usage"]["prompt_tokens_details"]["cached_tokens"] == last
        KIND.reset(arm.client, arm.servers.url)
        assert arm.read(3)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert arm.servers.tier_trouble() is None


def test_cpu_tier(options: ServerOptions, installation: Installation, tmp_path: Path) -> None:
    with running("cpu", options, installation, tmp_path) as arm:
        asked = {"kv_transfer_params": {"cached_token_stats": True}}
        counted, answers = arm.read_all(**asked)
        assert prompt_counters(counted) == (ALL, 0, 0, ALL)
        status = await_stores(arm.client, arm.lmcache_url, 60, DOCUMENTS * CHUNKS)
        assert (status.chunks, status.used_bytes) == (DOCUMENTS * CHUNKS, DOCUMENTS * CHUNKS * CHUNK_BYTES)
        counted, answers = arm.read_all(**asked)
        assert prompt_counters(counted) == (ALL - STORED, 0, STORED, ALL)
        assert (counted["external_queries"], counted["cached_tokens_unspecified"]) == (ALL, STORED)
        stats = [answer["kv_transfer_params"]["cached_token_stats"] for answer in answers]
        assert [item["num_lmcache_extra_cached_tokens"] for item in stats] == [CHUNKS * CHUNK] * DOCUMENTS
        own = arm.lmcache_counters()
        assert (own["lmcache_hit_tokens_l1"], own["lmcache_hit_tokens_l2"]) == (STORED, 0)
        assert (own["lmcache_chunks_written"], own["lmcache_chunks_read"]) == (DOCUMENTS * CHUNKS, DOCUMENTS * CHUNKS)
        KIND.reset(arm.client, arm.servers.url)
        clear(arm.client, arm.lmcache_url)
        assert prompt_counters(arm.read_all()[0]) == (ALL, 0, 0, ALL)


def test_disk_tier(options: ServerOptions, installation: Installation, tmp_path: Path) -> None:
    with running("disk", replace(options, disk=tmp_path / "disk"), installation, tmp_path) as arm:
        assert prompt_counters(arm.read_all()[0]) == (ALL, 0, 0, ALL)
        files = [file for file in (tmp_path / "disk").rglob("*") if file.is_file()]
        assert [file.stat().st_size for file in files] == [CHUNK_BYTES] * DOCUMENTS * CHUNKS
        clear(arm.client, arm.lmcache_url)
        assert prompt_counters(arm.read_all()[0]) == (ALL - STORED, 0, STORED, ALL)
        assert arm.lmcache_counters()["lmcache_hit_tokens_l2"] == STORED
    assert list((tmp_path / "disk").iterdir()) == []


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


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed (Debian's package redis-server)")
def test_redis_tier(options: ServerOptions, installation: Installation, tmp_path: Path) -> None:
    with (
        redis_server(tmp_path) as address,
        running("redis", replace(options, redis=address), installation, tmp_path) as arm,
    ):
        assert "geheim" not in str(arm.servers.describe())
        assert prompt_counters(arm.read_all(cache_salt="one")[0]) == (ALL, 0, 0, ALL)
        clear(arm.client, arm.lmcache_url)
        assert prompt_counters(arm.read_all(cache_salt="one")[0]) == (ALL - STORED, 0, STORED, ALL)
        assert arm.lmcache_counters()["lmcache_hit_tokens_l2"] == STORED
        # What a Redis server keeps from another run is not found under another salt.
        assert prompt_counters(arm.read_all(cache_salt="two")[0]) == (ALL, 0, 0, ALL)


def test_a_death_at_start_is_explained(options: ServerOptions, installation: Installation, tmp_path: Path) -> None:
    if installation.device != "cpu":
        pytest.skip("a GPU takes blocks of 16")
    servers = ArmServers("none", replace(options, block_size=16), installation, tmp_path)
    with pytest.raises(
        RunFailed, match=r"the vLLM server did not start: it ended with code 1: .*No common block size for 16.*--block-size 32"
    ):
        servers.start()
    assert all_gone(options.environment[MARK], 0)
