"""HTTP/1.1 over asyncio protocols: each socket read is stamped first, and parsed when all sockets that were ready have been stamped.

Chosen by measuring (``benchmarks/client_accuracy.py``): a stamp taken behind a library's stream, task switch and line iterator is late by
however long the other requests' parsing takes. ``httptools`` (llhttp) reads the HTTP, as it does for uvicorn.

Connections are kept and reused. A server may close an idle one at the moment in which the next request is written, and nobody can then
tell whether it was read. So a connection that lay idle for longer than ``REUSE_S`` is not used again, and one that is closed all the same
is a failure of its own kind, ``closed_idle``: sent once, counted, never sent again. From then on every request gets its own connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections import deque
from typing import cast

import httptools

from kvbench.runners.base import Clock
from kvbench.runners.http.address import Address
from kvbench.runners.http.transport import Failure, Receiver

REUSE_S = 2.0
"""Servers close idle connections after 5 s (uvicorn's default, and vLLM's), gunicorn's after 2."""

SLICE_S = 0.00025
"""Longest time for which reads are parsed before sockets are looked at again: what a stamp can be late by."""


class SocketTransport:
    """A :class:`~kvbench.runners.http.transport.Transport`; lives in one running event loop."""

    def __init__(self, address: Address, clock: Clock, tls: ssl.SSLContext | None, connect_timeout_s: float) -> None:
        self.clock = clock
        self._address, self._connect_timeout_s = address, connect_timeout_s
        self._tls = (tls or ssl.create_default_context()) if address.secure else None
        self._loop = asyncio.get_running_loop()
        self._reads: deque[tuple[float, Connection, bytes | Exception | None]] = deque()
        self._idle: list[tuple[float, Connection]] = []
        self.connections: set[Connection] = set()
        self.calls: set[SocketCall] = set()
        self.reuses = True

    async def open(self, connections: int) -> None:
        """Connect ahead."""
        made = await asyncio.gather(*(self.connect() for _ in range(connections)), return_exceptions=True)
        opened = [connection for connection in made if isinstance(connection, Connection)]
        if len(opened) > 1 and self._tls is None:  # TLS takes both sides, so the server has accepted
            await self._accepted()
        for connection in opened:
            self.keep(connection)

    def post(self, body: bytes, request_id: str, receiver: Receiver) -> SocketCall:
        """Send on a kept connection, or connect first."""
        call = SocketCall(self, self._address.request(body, request_id), receiver)
        self.calls.add(call)
        call.start(self._kept())
        return call

    def close(self) -> None:
        """Close every connection and forget every call."""
        for call in list(self.calls):
            call.forget()
        for connection in list(self.connections):
            connection.abort()
        self._reads.clear()

    async def connect(self) -> Connection:
        """A new connection; ``OSError``: nobody listens, no such host, no trust in its certificate, or no answer in time."""
        address = self._address
        making = self._loop.create_connection(lambda: Connection(self), address.host, address.port, ssl=self._tls)
        _, connection = await asyncio.wait_for(making, self._connect_timeout_s)
        self.connections.add(connection)
        return connection

    async def _accepted(self) -> None:
        """Wait until the server has accepted all connections: one more, which comes after them, is answered.

        Connected is what the kernel says; servers accept later, those on uvloop one connection in each turn of their loop. A request that
        is sent before waits for its connection's turn, and its time to the first token would hold that.
        """
        with contextlib.suppress(OSError):  # a timeout is one; if something is wrong, the requests will find out
            async with asyncio.timeout(self._connect_timeout_s):
                reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
                try:
                    writer.write(self._address.health)
                    await reader.read(1)
                finally:
                    writer.close()

    def keep(self, connection: Connection) -> None:
        """Have it ready for another request."""
        if self.reuses:
            self._idle.append((self.clock(), connection))
        else:
            connection.abort()

    def put(self, connection: Connection, event: bytes | Exception | None) -> None:
        """Stamp what a socket gave: data, or its end (``None``, or the reason)."""
        if not self._reads:
            self._loop.call_soon(self._parse)
        self._reads.append((self.clock(), connection, event))

    def _parse(self) -> None:
        """Take reads in order, for one slice of time."""
        reads, clock = self._reads, self.clock
        until = clock() + SLICE_S
        while reads:
            time_s, connection, event = reads.popleft()
            connection.take(time_s, event)
            if clock() > until:
                break
        if reads:
            self._loop.call_soon(self._parse)

    def _kept(self) -> Connection | None:
        """The connection used last, if it is young enough; older ones are closed."""
        while self._idle:
            since, connection = self._idle.pop()
            if self.reuses and connection.open and self.clock() - since <= REUSE_S:
                return connection
            connection.abort()
        return None


class SocketCall:
    """A request on its way, or waiting for its connection."""

    def __init__(self, transport: SocketTransport, request: bytes, receiver: Receiver) -> None:
        self._transport, self._request = transport, request
        self.receiver = receiver
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._over = False

    def start(self, connection: Connection | None) -> None:
        """Write the request to the connection, or connect and then write it."""
        self._connection = connection
        if connection is None:
            self._connecting = asyncio.create_task(self._connect())
        else:
            connection.send(self, self._request)

    def abort(self, failure: Failure) -> None:
        """End it with this failure; see :class:`kvbench.runners.http.transport.Call`."""
        if not self._over:
            self.end(self._transport.clock(), failure)
            self.forget()

    def forget(self) -> None:
        """Let go of the connection, which is of no use to another request, and tell nobody."""
        self._over = True
        self._transport.calls.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    def end(self, time_s: float, failure: Failure | None) -> None:
        """Tell the receiver how it ended."""
        self._over = True
        self._transport.calls.discard(self)
        self.receiver.ended(time_s, failure)

    async def _connect(self) -> None:
        try:
            self.start(await self._transport.connect())
        except OSError as error:  # TimeoutError is one
            self.end(self._transport.clock(), Failure("connect", _reason(error)))


def _reason(error: OSError) -> str:
    """Why there is no connection."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"the client itself has too many connections ({error}); ulimit -n raises how many it may have"
    return str(error) or type(error).__name__


class Connection(asyncio.Protocol):
    """One socket, and the answer that is read from it."""

    def __init__(self, owner: SocketTransport) -> None:
        self.open = False
        self._owner = owner
        self._socket: asyncio.Transport | None = None
        self._call: SocketCall | None = None
        self._used = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._socket, self.open = cast(asyncio.Transport, transport), True
        self._socket.set_write_buffer_limits(high=0)  # uvloop would keep what is written until the end of the turn, after the stamp

    def data_received(self, data: bytes) -> None:
        """Stamp it; parse later."""
        self._owner.put(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server, the network or we have closed it."""
        self.open = False
        self._owner.put(self, exc)

    # What the transport calls.

    def send(self, call: SocketCall, request: bytes) -> None:
        """Write a request; its answer is the next thing that is read."""
        assert self._socket is not None
        self._call = call
        self._parser = httptools.HttpResponseParser(self)
        self._began = self._has_length = self._until_close = self._complete = self._reusable = self._overrun = False
        self._location = ""
        self._failure: Failure | None = None
        self._pieces: list[bytes] = []
        call.receiver.sent(self._owner.clock())
        self._socket.write(request)

    def abort(self) -> None:
        """Close it at once."""
        self._call = None
        self.open = False
        if self._socket is not None:
            self._socket.abort()

    def take(self, time_s: float, event: bytes | Exception | None) -> None:
        """Parse what was read at ``time_s``."""
        if self._call is None:
            if isinstance(event, bytes):  # nobody asked
                self.abort()
            else:
                self._owner.connections.discard(self)
        elif isinstance(event, bytes):
            self._feed(self._call, time_s, event)
        else:
            self._owner.connections.discard(self)
            self._finish(self._call, time_s, None if event is None and self._until_close else self._closed(event))

    def _feed(self, call: SocketCall, time_s: float, data: bytes) -> None:
        self._began = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            self._overrun = True
            if not self._complete:
                self._failure = Failure("bad_http", f"not an HTTP answer: {error}")
        if self._pieces:  # a chunk of the transfer for each event, many of them in a read
            pieces, self._pieces = self._pieces, []
            self._failure = call.receiver.body(time_s, b"".join(pieces)) or self._failure
        if self._complete or self._failure is not None:
            self._finish(call, time_s, self._failure)

    def _finish(self, call: SocketCall, time_s: float, failure: Failure | None) -> None:
        self._call = None
        self._used = True
        if failure is None and self.open and self._reusable and not self._overrun:
            self._owner.keep(self)
        else:
            self.abort()
        call.end(time_s, failure)

    def _closed(self, reason: Exception | None) -> Failure:
        how = f"the connection broke ({reason})" if reason is not None else "the server closed the connection"
        if self._began:
            return Failure("closed", f"{how} before the answer was whole")
        if self._used:
            self._owner.reuses = False
            return Failure("closed_idle", f"{how} while it was reused; whether the request was read is unknown, and it is not sent again")
        return Failure("closed", f"{how} without an answer")

    # What the HTTP parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif name.lower() == b"location":
            self._location = value.decode(errors="replace")

    def on_headers_complete(self) -> None:
        """The status is known, and how the answer ends: an answer without a length ends with the connection."""
        status = self._parser.get_status_code()
        self._until_close = not self._has_length
        if status >= 200 and self._call is not None and not self._complete:
            self._call.receiver.status(status, self._location)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._complete:
            self._pieces.append(data)

    def on_message_begin(self) -> None:
        """An answer begins; a second one was not asked for."""
        self._overrun = self._complete

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one (1xx)."""
        if self._parser.get_status_code() >= 200:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()
