"""How far a client's TTFT is from the truth, how many requests a second it carries, and what it costs.

kvbench (with uvloop, and on asyncio's own loop) against bare aiohttp and bare httpx.

The fake server knows the truth: its first write of a token minus the arrival of the request. Client and server have a core each. The
clients take turns, every round in every scenario; figures are medians over the rounds.

S1: concurrency 1, prompts of 5,000 tokens, first token after 50 ms, 8 tokens. S2: concurrency 64, prompts of 128, first token after 20 ms,
then 128 tokens 10 ms apart. S3: concurrency 64, no delays, 64 tokens, 1,000 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import httpx
import numpy as np

from kvbench.runners.base import Clock, ClosedLoop, ListSource, Request
from kvbench.runners.http import client as client_module
from kvbench.runners.http.client import Client
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.http.process import new_event_loop
from kvbench.runs.records import RequestKey, RequestRecord
from lines import add_output, write_line


@dataclass(frozen=True, slots=True)
class Scenario:
    concurrency: int
    prompt_tokens: int
    tokens: int
    requests: int
    first_token_s: float
    gap_s: float


SCENARIOS = {
    "S1": Scenario(1, 5000, 8, 60, 0.05, 0.0),
    "S2": Scenario(64, 128, 128, 192, 0.02, 0.01),
    "S3": Scenario(64, 128, 64, 1000, 0.0, 0.0),
}
LIMITS = {"S1": (0.5, 2.0), "S2": (1.5, 5.0), "S3": (2.0, None)}
"""Most that kvbench's TTFT may be off, in ms: p50 and p99."""

CPU_LIMIT = 0.03
"""Most CPU seconds for 1,000 tokens, in S2, where each arrives by itself."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a client has to say: TTFT in seconds by request id."""

    ttft_s: dict[str, float]
    wall_s: float
    cpu_s: float


def kvbench_client(url: str, ids: list[str], scenario: Scenario) -> Sent:
    """As a run has it: every record is a line on disk when it ends."""
    requests = [
        Request(RequestKey("none", 0, "sequential", 0, place, name, place), _prompt(scenario, place), scenario.tokens)
        for place, name in enumerate(ids)
    ]
    ttft_s: dict[str, float] = {}
    client = Client(url, "fake", Clock())
    new_event_loop().close()  # imports are start-up
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:

        def on_end(request: Request, exchange: Exchange) -> None:
            record = _record(request, exchange)
            file.write(json.dumps(record.to_json()) + "\n")
            file.flush()
            if record.ttft_ms is not None and record.error is None:
                ttft_s[request.key.request_id] = record.ttft_ms / 1e3

        return _measured(lambda: (client.run(ListSource(requests), ClosedLoop(scenario.concurrency), on_end), ttft_s)[1])


def _record(request: Request, exchange: Exchange) -> RequestRecord:
    return RequestRecord(
        key=request.key,
        prompt_tokens=exchange.prompt_tokens,
        prompt_tokens_sent=len(request.prompt),
        output_tokens=exchange.output_tokens,
        cached_tokens_device=None,
        cached_tokens_host=None,
        computed_tokens=None,
        attribution=None,
        restore_ms=None,
        compute_ms=None,
        scheduled_s=exchange.scheduled_s,
        sent_s=exchange.sent_s,
        first_token_s=exchange.first_token_s,
        last_token_s=exchange.last_token_s,
        end_s=exchange.end_s,
        token_times_s=exchange.token_times_s,
        chunk_tokens=exchange.chunk_tokens,
        preemptions=None,
        error=exchange.error,
    )


def aiohttp_client(url: str, ids: list[str], scenario: Scenario) -> Sent:
    """The library's own way: one session, lines of the answer as they come."""
    import aiohttp

    async def run() -> dict[str, float]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def send(name: str, place: int) -> float | None:
                body, headers, found = _body(scenario, place), {"X-Request-Id": name, "Content-Type": "application/json"}, None
                sent = time.perf_counter()
                async with session.post(f"{url}/v1/completions", data=body, headers=headers) as answer:
                    async for line in answer.content:
                        if _has_token(line) and found is None:
                            found = time.perf_counter() - sent
                return found

            return await _in_flight(ids, scenario.concurrency, send)

    return _measured(lambda: asyncio.run(run()))


def httpx_client(url: str, ids: list[str], scenario: Scenario) -> Sent:
    """The library's own way: one client, lines of the answer as they come."""

    async def run() -> dict[str, float]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=600, trust_env=False) as client:

            async def send(name: str, place: int) -> float | None:
                body, headers, found = _body(scenario, place), {"X-Request-Id": name, "Content-Type": "application/json"}, None
                sent = time.perf_counter()
                async with client.stream("POST", f"{url}/v1/completions", content=body, headers=headers) as answer:
                    async for line in answer.aiter_lines():
                        if _has_token(line.encode()) and found is None:
                            found = time.perf_counter() - sent
                return found

            return await _in_flight(ids, scenario.concurrency, send)

    return _measured(lambda: asyncio.run(run()))


def asyncio_client(url: str, ids: list[str], scenario: Scenario) -> Sent:
    """kvbench as it is where there is no uvloop."""
    with mock.patch.object(client_module, "new_event_loop", asyncio.new_event_loop):
        return kvbench_client(url, ids, scenario)


CLIENTS = {"kvbench": kvbench_client, "asyncio": asyncio_client, "aiohttp": aiohttp_client, "httpx": httpx_client}


def _has_token(line: bytes) -> bool:
    """Reads every event, as a client must that counts tokens."""
    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
        return False
    choices = json.loads(line[6:])["choices"]
    return bool(choices and choices[0]["text"])


async def _in_flight(ids: list[str], concurrency: int, send: Callable[[str, int], Awaitable[float | None]]) -> dict[str, float]:
    waiting = iter(enumerate(ids))
    found: dict[str, float] = {}

    async def work() -> None:
        for place, name in waiting:
            ttft = await send(name, place)
            if ttft is not None:
                found[name] = ttft

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return found


def _measured(run: Callable[[], dict[str, float]]) -> Sent:
    wall, cpu = time.perf_counter(), time.process_time()
    ttft_s = run()
    return Sent(ttft_s, time.perf_counter() - wall, time.process_time() - cpu)


def _prompt(scenario: Scenario, place: int) -> list[int]:
    return [(place * 31 + token * 7) % 30000 for token in range(scenario.prompt_tokens)]


def _body(scenario: Scenario, place: int) -> bytes:
    body = {
        "model": "fake",
        "prompt": _prompt(scenario, place),
        "max_tokens": scenario.tokens,
        "min_tokens": scenario.tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    return json.dumps(body).encode()


# The process that drives: a server on one core, one client after the other on the other.


@contextmanager
def fake_server(core: int) -> Iterator[str]:
    command = [sys.executable, "-m", "kvbench.testing.fake_server", "--port=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def measure(url: str, name: str, label: str, number: int, core: int) -> dict[str, float]:
    """One client, one scenario, once."""
    scenario = SCENARIOS[label]
    script = {"first_token_s": scenario.first_token_s, "gap_s": scenario.gap_s}
    httpx.post(f"{url}/fake/script", json=script, trust_env=False).raise_for_status()
    command = [sys.executable, __file__, "--client", name, "--scenario", label, "--url", url, "--round", str(number)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=300, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    sent = Sent(**json.loads(done.stdout))
    truths = {truth["request_id"]: truth for truth in httpx.get(f"{url}/fake/truth", trust_env=False).json()}
    own = {key: truths[key] for key in _ids(name, label, number)}
    errors = [(sent.ttft_s[key] - (truth["first_token_s"] - truth["arrival_s"])) * 1e3 for key, truth in own.items()]
    p50, p99 = np.percentile(errors, [50, 99])
    return {
        "p50": float(p50),
        "p99": float(p99),
        "per_s": scenario.requests / sent.wall_s,
        "cpu": sent.cpu_s / sum(truth["tokens"] for truth in own.values()) * 1e3,
    }


def _ids(client: str, label: str, number: int) -> list[str]:
    return [f"{client}-{label}-{number}-{place}" for place in range(SCENARIOS[label].requests)]


def _targets(medians: dict[str, dict[str, dict[str, float]]]) -> dict[str, bool]:
    own = {label: medians[label]["kvbench"] for label in medians}
    met = {f"{label} p50 <= {LIMITS[label][0]} ms": own[label]["p50"] <= LIMITS[label][0] for label in own}
    met |= {f"{label} p99 <= {limit} ms": own[label]["p99"] <= limit for label in own if (limit := LIMITS[label][1]) is not None}
    if "aiohttp" in medians["S3"]:
        met["S3 requests/s >= aiohttp's"] = own["S3"]["per_s"] >= medians["S3"]["aiohttp"]["per_s"]
    return met | {f"S2 CPU s per 1,000 tokens <= {CPU_LIMIT}": own["S2"]["cpu"] <= CPU_LIMIT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(CLIENTS), help="only this client")
    add_output(parser)
    parser.add_argument("--client", choices=list(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--scenario", choices=list(SCENARIOS), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--round", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client is not None:
        ids = _ids(options.client, options.scenario, options.round)
        sent = CLIENTS[options.client](options.url, ids, SCENARIOS[options.scenario])
        print(json.dumps({"ttft_s": sent.ttft_s, "wall_s": sent.wall_s, "cpu_s": sent.cpu_s}))
        return
    server_core, client_core = sorted(os.sched_getaffinity(0))[:2]
    names = [options.only] if options.only else list(CLIENTS)
    taken: dict[str, dict[str, list[dict[str, float]]]] = {label: {name: [] for name in names} for label in SCENARIOS}
    with fake_server(server_core) as url:
        for number in range(options.rounds):
            for label in SCENARIOS:
                for name in names:
                    taken[label][name].append(measure(url, name, label, number, client_core))
    medians: dict[str, dict[str, dict[str, float]]] = {
        label: {
            name: {figure: round(statistics.median(one[figure] for one in rounds), 4) for figure in rounds[0]}
            for name, rounds in by_name.items()
        }
        for label, by_name in taken.items()
    }
    for label, by_name in medians.items():
        for name, own in by_name.items():
            off = f"TTFT off by {own['p50']:7.2f} / {own['p99']:7.2f} ms"
            print(f"{label} {name:8} {off}  {own['per_s']:6.0f} requests/s  {own['cpu']:.4f} CPU s per 1,000 tokens")
    line: dict[str, Any] = {
        "benchmark": "client_accuracy",
        "baseline": "the fake server's own times; bare aiohttp and httpx in the same rounds",
        "rounds": options.rounds,
        "cores": {"server": server_core, "client": client_core},
        "units": {"p50": "ms", "p99": "ms", "per_s": "requests/s", "cpu": "CPU s per 1,000 tokens, start-up left out"},
        "results": medians,
        "targets": _targets(medians) if "kvbench" in names else {},
    }
    write_line(line, options.output)


if __name__ == "__main__":
    main()
