"""The timed client: sends the requests of a pass to one endpoint, at a pace, and gives back what became of each.

Token ids go out and nothing is ever sent twice. The client is one thread and one event loop (uvloop where there is one), so that nothing
but its own work can delay a stamp; what it cannot help is measured (:mod:`kvbench.runners.http.lag`). Proxies of the environment are not
used: what would be timed is the proxy.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvbench.runners.base import Clock, ClosedLoop, Pace, Request, RequestSource
from kvbench.runners.http.address import Address
from kvbench.runners.http.connection import SocketTransport
from kvbench.runners.http.endpoints.endpoint import Endpoint, find_endpoint
from kvbench.runners.http.event_loop import new_event_loop
from kvbench.runners.http.exchange import AnswerReader, Exchange, not_sent
from kvbench.runners.http.file_limit import allow_connections
from kvbench.runners.http.lag import INTERVAL_S, Lag
from kvbench.runners.http.transport import Call, Failure, Transport
from kvbench.runners.send_queue import SendQueue

ALONE = ClosedLoop(1)

OnEnd = Callable[[Request, Exchange], None]


@dataclass(frozen=True, slots=True)
class Patience:
    """When a request, and when the whole run, is given up."""

    request_s: float = 600.0
    """Longest time from when a request is due to its end."""

    connect_s: float = 10.0
    """Longest time for a connection."""

    failures: int = 5
    """So many requests that end one after the other, all failed, and no more are sent. In a run that is worth anything none fails."""

    def exhausted(self, failures: int, last: Exchange) -> str | None:
        """Why no more are sent after so many failures in a row, the last of them this one; ``None``: they are."""
        if last.error is None or failures < self.failures:
            return None
        return f"{failures} requests in a row failed, the last with {last.error.kind}: {last.error.message}"


@dataclass(frozen=True, slots=True)
class SendReport:
    """How the sending went: how late the client was, and why it stopped early (``None``: all requests were sent)."""

    lag: Lag
    gave_up: str | None


class Client:
    """Sends requests to one server."""

    def __init__(
        self,
        url: str,
        model: str,
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        tls: ssl.SSLContext | None = None,
        token_ids: bool = False,
        cache_salt: str | None = None,
        endpoint: str = "completions",
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: the server's, without ``/v1``; http or https.
            model: as the server names it.
            headers: sent with every request (``Authorization``, ...).
            tls: whom to trust, for https; ``None``: the system's authorities.
            cache_salt: vLLM's ``cache_salt`` of every request: what another salt left in any cache is not found.
            endpoint: which one, by name; :data:`~kvbench.runners.http.endpoints.endpoint.ENDPOINTS`.
            token_ids: ask for the ids of the output, too (vLLM: ``return_token_ids``); the first chunk then carries the whole prompt.

        Raises:
            UsageError: no such endpoint, not an address, or a header that HTTP cannot carry.
        """
        self._endpoint = find_endpoint(endpoint)
        self._address = Address(url, headers or {}, self._endpoint.path)
        self._model, self._clock, self._tls = model, clock, tls
        self._token_ids, self._cache_salt = token_ids, cache_salt
        self.patience = patience or Patience()

    def run(self, source: RequestSource, pace: Pace, on_end: OnEnd, stop: Callable[[], str | None] = lambda: None) -> SendReport:
        """Send all requests that the source gives, in order, at the pace; returns when all have ended.

        Those that come after no other are encoded before the first is sent: encoding one would delay others' stamps. One that comes after
        another is encoded as soon as that one has ended, before its pause begins to run out.

        Args:
            on_end: called once for each request as it ends, in this thread, between reads and never before one that is ready. In a closed
                loop of one, the next request waits until it has returned, so that it may take its time.
            stop: asked every 10 ms; a reason it gives cuts off what is on its way, and nothing more is sent. Whoever watches the server
                says here that it died.

        Raises:
            KeyboardInterrupt: the user stopped it; the sockets are closed, and ``on_end`` has had every request that had ended.
        """
        allow_connections(min(pace.concurrency, source.count) if isinstance(pace, ClosedLoop) else source.count)
        ids = self._token_ids or source.needs_answers
        encode = partial(self._endpoint.encode, model=self._model, ids=ids, cache_salt=self._cache_salt)
        bodies = {request.key.request_id: encode(request) for request in source.first}
        with asyncio.Runner(loop_factory=new_event_loop) as runner, _no_collection():
            return runner.run(self._run(source, Bodies(bodies, encode), pace, on_end, stop))

    async def _run(self, source: RequestSource, bodies: Bodies, pace: Pace, on_end: OnEnd, stop: Callable[[], str | None]) -> SendReport:
        transport = SocketTransport(self._address, self._clock, self._tls, self.patience.connect_s)
        try:
            await transport.open(min(pace.concurrency, source.count) if isinstance(pace, ClosedLoop) else 1)
            loop = _Loop(source, bodies, self._endpoint, pace, transport, self._clock, self.patience, on_end, stop)
            return await loop.run()
        finally:
            transport.close()


@dataclass(frozen=True, slots=True)
class Bodies:
    """What requests are on the wire: those encoded and not sent yet, by id, and how another one is encoded."""

    ready: dict[str, bytes]
    encode: Callable[[Request], bytes]

    def add(self, request: Request) -> None:
        """Encode one more."""
        self.ready[request.key.request_id] = self.encode(request)


class _Loop:
    """One run: which requests are on their way, which have ended, and which are still to be sent."""

    def __init__(
        self,
        source: RequestSource,
        bodies: Bodies,
        endpoint: Endpoint,
        pace: Pace,
        transport: Transport,
        clock: Clock,
        patience: Patience,
        on_end: OnEnd,
        stop: Callable[[], str | None],
    ) -> None:
        self._bodies, self._endpoint, self._pace, self._needs_ids = bodies, endpoint, pace, source.needs_answers
        self._queue = SendQueue(source, pace, clock)
        self._timer: asyncio.Handle | None = None
        self._transport, self._clock, self._patience, self._on_end, self._stop = transport, clock, patience, on_end, stop
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._on_their_way: dict[AnswerReader, tuple[float, Call]] = {}  # oldest first, each with when it was due
        self._ended: deque[tuple[Request, Exchange]] = deque()
        self._failures = 0
        self._gave_up: str | None = None
        self._lag: list[float] = []

    async def run(self) -> SendReport:
        """Send and wait; an exception of any callback ends it."""
        self._loop.set_exception_handler(self._broken)
        self._tick_due_s = self._clock()
        self._send_due()
        self._tick()
        try:
            if self._on_their_way or self._queue:
                await self._over
        except asyncio.CancelledError:  # Ctrl-C
            while self._ended:
                self._on_end(*self._ended.popleft())
            raise
        return SendReport(Lag(self._lag), self._gave_up)

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._over.done():
            self._over.set_exception(context.get("exception") or RuntimeError(context["message"]))

    # Sending.

    def _send_due(self) -> None:
        """Send what is due. The next one has a timer, which may be a millisecond early: the last bit is waited here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request, due_s in self._queue.due():
            self._send(request, due_s)
        wait = self._queue.due_s - self._clock()
        if wait < 0.002:
            self._timer = self._loop.call_soon(self._send_due)
        elif wait < float("inf"):
            self._timer = self._loop.call_later(wait - 0.001, self._send_due)

    def _send(self, request: Request, scheduled_s: float) -> None:
        body = self._bodies.ready.pop(request.key.request_id)
        answer = AnswerReader(request, scheduled_s, self._take, self._endpoint, self._needs_ids)
        self._on_their_way[answer] = (scheduled_s, self._transport.post(body, request.key.request_id, answer))

    # Ending.

    def _take(self, answer: AnswerReader, exchange: Exchange) -> None:
        """A request has ended: the next one is sent first, and then it is delivered; unless it is alone."""
        del self._on_their_way[answer]
        self._end(answer.request, exchange)
        self._failures = 0 if exchange.error is None else self._failures + 1
        reason = self._patience.exhausted(self._failures, exchange)
        if reason is not None:
            self._give_up(reason)
        if self._pace != ALONE:
            self._follow(answer.request, exchange)

    def _follow(self, request: Request, exchange: Exchange) -> None:
        """Send what may be sent now that this one has ended."""
        if self._gave_up is None:
            ids = exchange.token_ids if exchange.error is None else None
            for follow in self._queue.ended(request, ids, exchange.last_token_s or exchange.end_s):
                self._bodies.add(follow.request)
            self._send_due()

    def _end(self, request: Request, exchange: Exchange) -> None:
        if not self._ended:
            self._loop.call_soon(self._deliver)
        self._ended.append((request, exchange))

    def _deliver(self) -> None:
        """Hand over one, and look at the sockets before the next: writing a record takes longer than reading a chunk."""
        if self._over.done():  # interrupted, or on_end has failed
            return
        request, exchange = self._ended.popleft()
        self._on_end(request, exchange)
        if not self._on_their_way:  # nothing could come late
            self._tick_due_s = max(self._tick_due_s, self._clock())
        if self._pace == ALONE:
            self._follow(request, exchange)
        if self._ended:
            self._loop.call_soon(self._deliver)
        elif not self._on_their_way and not self._queue:
            self._over.set_result(None)

    def _give_up(self, reason: str) -> None:
        """Send no more. What is on its way may end by itself."""
        if self._gave_up is None:
            self._gave_up, now = reason, self._clock()
            for request, due_s in self._queue.drain():
                self._end(request, not_sent(due_s, now, reason))

    # Watching.

    def _tick(self) -> None:
        """Every 10 ms: how late is it, is it time to stop, has a request had its time?"""
        now = self._clock()
        self._lag.append(max(0.0, now - self._tick_due_s))
        reason = self._stop()
        if reason is not None:
            self._give_up(reason)
            for _, call in list(self._on_their_way.values()):
                call.abort(Failure("stopped", reason))
        while self._on_their_way:
            scheduled, call = next(iter(self._on_their_way.values()))
            if now - scheduled < self._patience.request_s:
                break
            call.abort(Failure("timeout", f"it did not end within {self._patience.request_s:g} s"))
        self._tick_due_s = now + INTERVAL_S
        self._loop.call_later(INTERVAL_S, self._tick)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A collection visits all prompts, and takes milliseconds in which nothing is stamped. The client makes no garbage that needs one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
