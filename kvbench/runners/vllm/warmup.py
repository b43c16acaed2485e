"""Warm kernels and cold caches: the first use of everything is paid before a run, by prompts that are not of its workload."""

from __future__ import annotations

import httpx

from kvbench.errors import RunFailed
from kvbench.runners.base import ClosedLoop, ListSource, Request
from kvbench.runners.http.client import Client
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.servers.kinds.vllm import KIND
from kvbench.runners.vllm.lmcache import await_stores, clear
from kvbench.runs.records import RequestKey
from kvbench.workloads.draws import Draws

OUTPUT_TOKENS = 4
BATCH_PROMPT_TOKENS = 16
STORES_S = 60.0


def warm_up(client: Client, purpose: str, vocab: int, prompt_tokens: int, concurrency: int) -> None:
    """Send a prompt of this length, and then as many short ones at once as will be in flight.

    Args:
        purpose: names the stream that the tokens are drawn from; no workload draws from it, and each server needs one of its own.

    Raises:
        RunFailed: the server does not answer them.
    """

    def check(request: Request, exchange: Exchange) -> None:
        if exchange.error is not None:
            raise RunFailed(f"the warm-up failed ({exchange.error.kind}): {exchange.error.message}")

    lengths = [prompt_tokens, *([min(BATCH_PROMPT_TOKENS, prompt_tokens)] * (concurrency if concurrency > 1 else 0))]
    requests = [
        Request(
            RequestKey("warm-up", 0, "warm-up", 0, number, f"warm-up-{number}", number),
            _tokens(purpose, number, length, vocab),
            OUTPUT_TOKENS,
        )
        for number, length in enumerate(lengths)
    ]
    client.run(ListSource(requests[:1]), ClosedLoop(1), check)
    client.run(ListSource(requests[1:]), ClosedLoop(concurrency), check)


def empty(http: httpx.Client, url: str, lmcache_url: str | None) -> None:
    """Empty the caches of a server and of the LMCache server beside it, and see that they are; ``RunFailed`` where one is not."""
    if lmcache_url is not None:
        await_stores(http, lmcache_url, STORES_S)
    KIND.reset(http, url)
    if lmcache_url is not None:
        clear(http, lmcache_url)


def _tokens(purpose: str, number: int, length: int, vocab: int) -> list[int]:
    return Draws(0, "warm-up", purpose, number).integers(length, 0, vocab)
