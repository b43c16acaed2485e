"""The timed client: sends the requests of a pass to one endpoint, at a pace, and gives back what became of each.

Token ids go out and nothing is ever sent twice. The client is one thread and one event loop (uvloop where there is one), so that nothing
but its own work can delay a stamp; what it cannot help is measured (``lags_s``). Proxies of the environment are not
used: what would be timed is the proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from kvbench.runners.base import Clock, ClosedLoop, Pace, Request, RequestSource
from kvbench.runners.http.address import Address
from kvbench.runners.http.connection import SocketTransport
from kvbench.runners.http.endpoints.endpoint import find_endpoint
from kvbench.runners.http.exchange import AnswerReader, Exchange
from kvbench.runners.http.process import allow_connections, new_event_loop, no_collection
from kvbench.runners.http.transport import Call, Failure, Transport
from kvbench.runners.send_queue import SendQueue
from kvbench.runs.records import RequestError

ALONE = ClosedLoop(1)

INTERVAL_S = 0.01
"""Between two looks at how late the loop is."""

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


@dataclass(frozen=True, slots=True)
class SendReport:
    """How the sending went.

    ``lags_s``: how many seconds late a timer of the loop ran, every ``INTERVAL_S``; 0.0 means in time, to the millisecond that timers have.
    A late timer and a stamp that waited have the same causes: the client's own work, ``on_end`` included, and cores that others use. Where
    these values come near the times that were measured, the client explains them and not the server.

    ``gave_up``: why it stopped early; ``None``: all requests were sent.
    """

    lags_s: list[float]
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
        without: Collection[str] = (),
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
            without: fields that no request has, as the server refuses them; without ``ignore_eos`` an answer may be shorter than asked for.

        Raises:
            UsageError: no such endpoint, not an address, or a header that HTTP cannot carry.
        """
        self.endpoint = find_endpoint(endpoint)
        self.address = Address(url, headers or {}, self.endpoint.path)
        self.clock, self.patience, self.tls = clock, patience or Patience(), tls
        self.token_ids = token_ids
        self.without = frozenset(without)
        self._encode = partial(self.endpoint.encode, model=model, cache_salt=cache_salt)

    def encode(self, request: Request, ids: bool) -> bytes:
        """The request's body."""
        body = self._encode(request, ids=ids)
        return _leave_out(body, self.without) if self.without else body

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
        allow_connections(_most_in_flight(source, pace))
        with asyncio.Runner(loop_factory=new_event_loop) as runner, no_collection():
            return runner.run(_Sending(self, source, pace, on_end, stop).run())


class _Sending:
    """One run: which requests are on their way, which have ended, and which are still to be sent."""

    def __init__(self, client: Client, source: RequestSource, pace: Pace, on_end: OnEnd, stop: Callable[[], str | None]) -> None:
        """Encodes the requests that come after no other; sends nothing yet."""
        self._source, self._pace, self._on_end, self._stop = source, pace, on_end, stop
        self._endpoint, self._clock, self._patience = client.endpoint, client.clock, client.patience
        self._encode = partial(client.encode, ids=client.token_ids or source.needs_answers)
        self._bodies = {request.key.request_id: self._encode(request) for request in source.first}  # those not sent yet
        self._client, self._may_end_early = client, "ignore_eos" in client.without
        self._timer: asyncio.Handle | None = None
        self._on_their_way: dict[AnswerReader, tuple[float, Call]] = {}  # oldest first, each with when it was due
        self._ended: deque[tuple[Request, Exchange]] = deque()
        self._failures = 0
        self._gave_up: str | None = None
        self._lags_s: list[float] = []

    async def run(self) -> SendReport:
        """Connect, send and wait; an exception of any callback ends it."""
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._transport: Transport = SocketTransport(self._client.address, self._clock, self._client.tls, self._patience.connect_s)
        try:
            await self._transport.open(_most_in_flight(self._source, self._pace) if isinstance(self._pace, ClosedLoop) else 1)
            self._queue = SendQueue(self._source, self._pace, self._clock)
            self._loop.set_exception_handler(self._broken)
            self._tick_due_s = self._clock()
            self._send_due()
            self._tick()
            if self._on_their_way or self._queue:
                await self._over
        except asyncio.CancelledError:  # Ctrl-C
            while self._ended:
                self._on_end(*self._ended.popleft())
            raise
        finally:
            self._transport.close()
        return SendReport(self._lags_s, self._gave_up)

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
            body = self._bodies.pop(request.key.request_id)
            answer = AnswerReader(request, due_s, self._take, self._endpoint, self._source.needs_answers, self._may_end_early)
            self._on_their_way[answer] = (due_s, self._transport.post(body, request.key.request_id, answer))
        wait = self._queue.due_s - self._clock()
        if wait < 0.002:
            self._timer = self._loop.call_soon(self._send_due)
        elif wait < float("inf"):
            self._timer = self._loop.call_later(wait - 0.001, self._send_due)

    # Ending.

    def _take(self, answer: AnswerReader, exchange: Exchange) -> None:
        """A request has ended: the next one is sent first, and then it is delivered; unless it is alone."""
        del self._on_their_way[answer]
        self._end(answer.request, exchange)
        error = exchange.error
        self._failures = 0 if error is None else self._failures + 1
        if error is not None and self._failures >= self._patience.failures:
            self._give_up(f"{self._failures} requests in a row failed, the last with {error.kind}: {error.message}")
        if self._pace != ALONE:
            self._follow(answer.request, exchange)

    def _follow(self, request: Request, exchange: Exchange) -> None:
        """Send what may be sent now that this one has ended."""
        if self._gave_up is None:
            ids = exchange.token_ids if exchange.error is None else None
            for follow in self._queue.ended(request, ids, exchange.last_token_s or exchange.end_s):
                self._bodies[follow.request.key.request_id] = self._encode(follow.request)
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
            error = RequestError("not_sent", reason)
            for request, due_s in self._queue.drain():
                self._end(request, Exchange(due_s, None, now, [], [], 0, None, None, None, error))

    # Watching.

    def _tick(self) -> None:
        """Every 10 ms: how late is it, is it time to stop, has a request had its time?"""
        now = self._clock()
        self._lags_s.append(max(0.0, now - self._tick_due_s))
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


def _leave_out(body: bytes, names: frozenset[str]) -> bytes:
    """A JSON object without these fields, wherever they are."""
    fields = msgspec.json.decode(body)
    for holder in (fields, *(value for value in fields.values() if isinstance(value, dict))):
        for name in names & holder.keys():
            del holder[name]
    return msgspec.json.encode(fields)


def _most_in_flight(source: RequestSource, pace: Pace) -> int:
    return min(pace.concurrency, source.count) if isinstance(pace, ClosedLoop) else source.count
