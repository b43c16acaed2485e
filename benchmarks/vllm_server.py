"""A vLLM server on the CPU for a benchmark to measure against: started, awaited, and stopped with its whole process group."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # by default vLLM keeps a core for its front end and computes on one thread only
}
ARGUMENTS = "--max-model-len=8192 --enable-prefix-caching --enforce-eager --max-num-seqs=8 --block-size=32 --num-gpu-blocks-override=672"


@contextlib.contextmanager
def vllm_server(python: Path, model: Path, dtype: str, threads: int, log: Path, startup_s: float = 300) -> Iterator[tuple[str, int]]:
    """Serve ``model`` on a free loopback port with so many bound threads; gives the base URL and the server's process group.

    Raises:
        RuntimeError: the server ended, or did not answer in time; the log says why.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # As a module: the console script looks for a distribution named vllm, and the CPU build is named otherwise.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1", f"--port={port}"]
    command += [f"--model={model}", f"--dtype={dtype}", *ARGUMENTS.split()]
    own = {"VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}", "OMP_NUM_THREADS": str(threads), "VLLM_CACHE_ROOT": str(log.parent)}
    inherited = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}  # vLLM has its own
    with log.open("wb") as output:
        # A session of its own: the engine core and its worker outlive the first process when only that one is stopped.
        process = subprocess.Popen(
            command, env={**inherited, **ENVIRONMENT, **own}, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_healthy(process, url, log, startup_s)
        yield url, process.pid
    finally:
        _stop_group(process)


@contextlib.contextmanager
def frozen(group: int) -> Iterator[None]:
    """Stop every process of the group for the while: an idle server still polls, and would take from what is measured beside it."""
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path, startup_s: float) -> None:
    deadline = time.monotonic() + startup_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode}; see {log}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        time.sleep(0.5)
    raise RuntimeError(f"vLLM did not answer within {startup_s:.0f} s; see {log}")


def _stop_group(process: subprocess.Popen[bytes], grace_s: float = 20) -> None:
    """SIGTERM to the group, SIGKILL to what is left of it after the grace."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def complete_all(url: str, prompts: Sequence[Sequence[int]], output_tokens: int) -> float:
    """Send all prompts at once; returns the seconds from first send to last answer.

    Raises:
        RuntimeError: a request failed, or gave another number of tokens than asked for.
    """
    with httpx.Client(base_url=url, timeout=600, trust_env=False) as client, ThreadPoolExecutor(len(prompts)) as pool:

        def complete(prompt: Sequence[int]) -> int:
            body = {"prompt": list(prompt), "max_tokens": output_tokens, "temperature": 0, "ignore_eos": True}
            answer = client.post("/v1/completions", json=body)
            answer.raise_for_status()
            return int(answer.json()["usage"]["completion_tokens"])

        begin = time.perf_counter()
        written = list(pool.map(complete, prompts))
        seconds = time.perf_counter() - begin
    if set(written) != {output_tokens}:
        raise RuntimeError(f"asked for {output_tokens} tokens a request, got {written}")
    return seconds
