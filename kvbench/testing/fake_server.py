"""A server that speaks OpenAI's completions API as vLLM 0.32 does, without a model: deterministic, scripted, and knowing the truth.

It ships with kvbench, so that whoever doubts a figure, or changes the client, can hold it against a known answer:
``python -m kvbench.testing.fake_server --first-token-s 0.05 --gap-s 0.01`` prints its address. Tests run it in a thread of theirs
(:func:`serving`). What it did is known by request id, the header ``X-Request-Id`` (:class:`Truth`).

Beside vLLM's and LMCache's paths it has its own: ``GET /fake/truth``, and as POST with a JSON object ``/fake/script`` (fields to change),
``/fake/counters`` (names and what to add), ``/fake/close`` (every idle connection) and ``/fake/die``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import signal
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from kvbench.errors import UsageError
from kvbench.runners.http.event_loop import new_event_loop
from kvbench.testing.fake_caches import CHUNK_TOKENS, FakeCaches
from kvbench.testing.fake_connection import FakeConnection
from kvbench.testing.fake_counters import Counters
from kvbench.testing.fake_script import FAULTS, MODEL, Script
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


class FakeServer:
    """Lives in one event loop. ``script`` may be changed at any time, from any thread, and holds for the requests that come then."""

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or Script()
        self.truth: dict[str, Truth] = {}
        self.bodies: deque[bytes] = deque(maxlen=1000)
        self.connections_made = 0
        self.resets = 0
        self.caches = FakeCaches(self.script)
        pool = self.script.pool_tokens
        self.counters: Counters = Counters(
            MODEL, self.script.block_size, None if pool is None else pool // self.script.block_size, self.script.hides
        )
        self.connections: set[FakeConnection] = set()
        self.dead = asyncio.Event()
        self.requests = 0
        self._reads: deque[tuple[float, FakeConnection, bytes]] = deque()
        self._storing: list[tuple[float, int]] = []
        self._server: asyncio.Server | None = None
        self._scheme = "http"

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0: a free one."""
        self._scheme = "http" if tls is None else "https"
        self._server = await asyncio.get_running_loop().create_server(lambda: FakeConnection(self), host, port, ssl=tls, backlog=4096)
        address, self.port = self._server.sockets[0].getsockname()[:2]
        self.url = f"{self._scheme}://{f'[{address}]' if ':' in address else address}:{self.port}"

    def die(self) -> None:
        """Break every connection and listen no more."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.break_off()
        self.dead.set()

    def close_idle(self) -> None:
        """Close every connection that waits for its next request."""
        for connection in list(self.connections):
            connection.close_if_idle()

    def read(self, connection: FakeConnection, data: bytes) -> None:
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
        self.counters.add({f"request_success:{how}": 1})
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


@contextlib.contextmanager
def serving(script: Script | None = None, tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    """A server on a free loopback port, in a thread of this process, until the block ends."""
    started = threading.Event()
    found: list[FakeServer] = []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        server = FakeServer(script)
        await server.start(tls=tls)
        found.append(server)
        stop.append((asyncio.get_running_loop(), ended := asyncio.Event()))
        started.set()
        await ended.wait()
        server.die()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=work, name="fake server", daemon=True)
    thread.start()
    started.wait()
    if not found:
        raise RuntimeError("the fake server did not start")
    try:
        yield found[0]
    finally:
        loop, ended = stop[0]
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C, SIGTERM or the fault ``die``; the first line of the output is the address."""
    options = vars(_parser().parse_args(arguments))
    host, port = options.pop("host"), options.pop("port")
    try:
        script = Script(**options)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve_alone(script, host, port))
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError, UsageError) as error:
        print(f"fake server: {error}", file=sys.stderr)
        return 1


async def _serve_alone(script: Script, host: str, port: int) -> int:
    server = FakeServer(script)
    await server.start(host, port)
    ended = asyncio.Event()
    if sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(server.url, flush=True)
    waiting = {asyncio.ensure_future(event.wait()) for event in (ended, server.dead)}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    died = server.dead.is_set()
    server.die()
    return int(died)


def _parser() -> argparse.ArgumentParser:
    """Options: the address, and every field of :class:`Script`."""
    parser = argparse.ArgumentParser(
        prog="python -m kvbench.testing.fake_server",
        description="A scripted server that speaks OpenAI's completions API as vLLM does, without a model.",
        epilog="faults: " + "; ".join(f"{name}: {does}" for name, does in FAULTS.items()) + ". N: --fault-after.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: a free one (default: %(default)s)")
    kinds = get_type_hints(Script)
    for field in dataclasses.fields(Script):
        flag, kind = "--" + field.name.replace("_", "-"), kinds[field.name]
        says = field.metadata["help"] + " (default: %(default)s)"
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default, help=field.metadata["help"])
        else:
            kind = next((part for part in get_args(kind) if part is not type(None)), kind)
            choices = ("", *FAULTS) if field.name == "fault" else None
            parser.add_argument(flag, type=kind, default=field.default, choices=choices, metavar=kind.__name__.upper(), help=says)
    return parser


if __name__ == "__main__":
    sys.exit(main())
