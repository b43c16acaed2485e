"""What the fake server knows and does, whoever is connected: its script, its caches and counters, and the truth of each request."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from kvbench.testing.fake_caches import CHUNK_TOKENS, FakeCaches
from kvbench.testing.fake_counters import Counters
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_stream import Ask


@dataclass(slots=True)
class Truth:
    """What the server did with one request; times in seconds of this process's ``time.perf_counter``.

    ``first_token_s`` and ``last_token_s``: when it wrote, or began to write, the first and the last chunk with a token.
    """

    request_id: str
    arrival_s: float
    prompt_tokens: int
    first_token_s: float | None = None
    last_token_s: float | None = None
    tokens: int = 0


class Connected(Protocol):
    """One client's socket, as the server sees it."""

    def take(self, read_s: float, data: bytes) -> None:
        """Handle what was read at ``read_s``."""

    def break_off(self) -> None:
        """Break the connection, with a reset."""

    def close_if_idle(self) -> None:
        """Close it, unless it is in the middle of a request."""


class FakeState:
    """Lives in one event loop. ``script`` may be changed at any time, from any thread, and holds for the requests that come then."""

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or Script()
        self.truth: dict[str, Truth] = {}
        self.bodies: deque[bytes] = deque(maxlen=1000)
        self.connections_made = 0
        self.resets = 0
        self.caches = FakeCaches(self.script)
        self.counters = Counters(self.script)
        self.connections: set[Connected] = set()
        self.dead = asyncio.Event()
        self.requests = self.metrics_faults = 0
        self._reads: deque[tuple[float, Connected, bytes]] = deque()
        self._storing: list[tuple[float, int]] = []

    def die(self) -> None:
        """Break every connection."""
        for connection in list(self.connections):
            connection.break_off()
        self.dead.set()

    def close_idle(self) -> None:
        """Close every connection that waits for its next request."""
        for connection in list(self.connections):
            connection.close_if_idle()

    def read(self, connection: Connected, data: bytes) -> None:
        """Stamp what a socket gave. It is handled when all sockets that are ready have been stamped: what waits for others has arrived."""
        if not self._reads:
            asyncio.get_running_loop().call_soon(self._take_read)
        self._reads.append((time.perf_counter(), connection, data))

    def _take_read(self) -> None:
        """Handle one read, and look at the sockets before the next."""
        read_s, connection, data = self._reads.popleft()
        if self._reads:
            asyncio.get_running_loop().call_soon(self._take_read)
        connection.take(read_s, data)

    def admit(self, ask: Ask, arrival_s: float) -> tuple[Truth, str, int]:
        """Count a completion request that is whole now; returns its truth, the fault that strikes it, and its cached tokens.

        A request that is refused with a status is counted nowhere but in ``requests``, as vLLM's engine never sees it.

        Raises:
            UsageError: it does not fit the pool.
        """
        self.requests += 1
        script, counters = self.script, self.counters
        fault = script.strikes(self.requests)
        truth = Truth(ask.request_id, arrival_s, len(ask.prompt))
        if fault in ("status", "http"):
            self.truth[ask.request_id] = truth
            return truth, fault, 0
        device, host, _ = self.caches.read(ask.prompt, ask.tokens, ask.cache_salt)
        if script.restart_after is not None and self.requests == script.restart_after + 1:
            counters.reset()
        counters.prompt(len(ask.prompt), device, host, self.caches.tier, script.tier_lookups)
        if script.foreign_tokens:
            counters.prompt(script.foreign_tokens, 0, 0, self.caches.tier)
            counters.add({"request_success:length": 1})
        if script.preempt_every is not None and self.requests % script.preempt_every == 0:
            counters.add({"num_preemptions": 1})
        self.truth[ask.request_id] = truth
        return truth, fault, device + host

    def ended(self, ask: Ask, how: str) -> None:
        """Count an answer that has ended (``length``, ``abort``); its chunks are stored from now on."""
        self.counters.add({f"request_success:{how}": 1, "num_requests_running": -int(ask.stream)})
        if self.script.store_s:
            self._storing.append((time.perf_counter() + self.script.store_s, len(ask.prompt) // CHUNK_TOKENS))

    def lmcache_status(self) -> dict[str, object]:
        """What LMCache would say."""
        now = time.perf_counter()
        self._storing = [(done, chunks) for done, chunks in self._storing if done > now]
        return self.caches.status(sum(chunks for _, chunks in self._storing))

    def reset(self, query: str) -> bool:
        """Forget the prefix cache, and LMCache's too if the query says so; whether that was done."""
        if self.script.resets:
            self.resets += 1
            self.caches.clear_pool()
            if "reset_external=true" in query:
                self.caches.clear_tier()
        return self.script.resets

    def take_script(self, changes: dict[str, Any]) -> None:
        """Change fields of the script. The sizes of the caches are those of the start."""
        self.script = dataclasses.replace(self.script, **changes)
