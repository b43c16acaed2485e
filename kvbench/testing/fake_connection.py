"""One client's socket at the fake server: reads requests, answers them, plays streams; and the paths that there are."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import httptools

from kvbench.errors import UsageError
from kvbench.testing.fake_limits import accept
from kvbench.testing.fake_protocol import Refusal, read
from kvbench.testing.fake_script import MODEL
from kvbench.testing.fake_state import FakeState, Truth
from kvbench.testing.fake_stream import Answer, Ask, Write, answer, error_body, error_event, frames, whole


class FakeConnection(asyncio.Protocol):
    """One client's socket: reads requests, plays answers."""

    def __init__(self, server: FakeState) -> None:
        self._server = server
        self._timer: asyncio.TimerHandle | None = None
        self._ask: Ask | None = None
        self._read_s = 0.0
        self._idle = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # what is written leaves at once, not at the end of the loop's turn
        self._parser = httptools.HttpRequestParser(self)
        self._server.connections.add(self)
        self._server.connections_made += 1

    def data_received(self, data: bytes) -> None:
        """Have it stamped; it is handled later."""
        self._server.read(self, data)

    def take(self, read_s: float, data: bytes) -> None:
        """Handle what was read at ``read_s``."""
        if self._transport.is_closing():
            return
        self._read_s = read_s
        if self._timer is not None and self._ask is None:  # it was about to close an idle connection
            self._stop_timer()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was cut off: what it waited for is aborted."""
        self._server.connections.discard(self)
        self._stop_timer()
        if self._ask is not None:
            self._finish("abort")

    def break_off(self) -> None:
        """Break the connection, with a reset."""
        with contextlib.suppress(OSError, AttributeError):  # of TLS, there is no socket to be had
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def close_if_idle(self) -> None:
        """Close it, unless it is in the middle of a request."""
        if self._idle:
            self._transport.close()

    # What the HTTP parser calls.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._idle = False
        self._url, self._body = b"", b""
        self._headers: dict[str, str] = {}

    def on_url(self, url: bytes) -> None:
        """A piece of its path."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of it."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body += body

    def on_message_complete(self) -> None:
        """It is whole: answer it."""
        path, _, query = self._url.decode("latin-1").partition("?")
        method = self._parser.get_method().decode()
        key = self._server.script.api_key
        if key and path.startswith("/v1/") and self._headers.get("authorization") != f"Bearer {key}":
            self._reply(*_as_json({"error": "Unauthorized"}, 401))
            return
        if (method, path) == ("POST", "/v1/completions"):
            self._complete()
            return
        route = _ROUTES.get((method, path))
        if route is None:
            self._reply(*_no_route(path))
            return
        try:
            self._reply(*(route(self._server, query, json.loads(self._body or b"{}")) or _as_json({})))
        except (ValueError, TypeError, KeyError) as error:
            self._reply(400, error_body(400, str(error)))

    # Answers.

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        close = "" if self._server.script.keep_alive else "Connection: close\r\n"
        head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\n{close}Content-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)
        self._after_answer()

    def _complete(self) -> None:
        server, script = self._server, self._server.script
        server.bodies.append(self._body)
        try:
            _check_fields(self._body, script.refuses)
            asked = read(self._body, self._headers.get("content-type", ""))
            ask = accept(asked, self._headers.get("x-request-id", f"request-{server.requests}"), script)
            truth, fault, cached_tokens = server.admit(ask, self._read_s)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        except (UsageError, OverflowError) as error:  # too long for the pool; a token id of more than 63 bits
            self._reply(400, error_body(400, str(error)))
            return
        if fault == "status":
            self._reply(script.fault_status, error_body(script.fault_status, "the script says so"))
        elif fault == "http":
            self._transport.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            self._transport.close()
        elif not ask.stream:
            truth.tokens = ask.tokens
            server.counters.add({"generation_tokens": ask.tokens})
            self._reply(200, whole(ask, cached_tokens))
            server.ended(ask, "length")
        else:
            self._play(ask, truth, answer(script, ask, fault, cached_tokens))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with the refusal, in the stream if vLLM had begun one."""
        body = error_body(refusal.status, str(refusal), refusal.kind, refusal.param)
        if not refusal.in_stream:
            self._reply(*((refusal.status, body) if refusal.kind else _as_json({"detail": str(refusal)}, refusal.status)))
            return
        for frame in frames(Answer([Write(0.0, error_event(body), 0)], "end"), self._server.script):
            self._transport.write(frame.data)
        self._after_answer()

    def _play(self, ask: Ask, truth: Truth, planned: Answer) -> None:
        self._ask, self._truth, self._ends = ask, truth, planned.ends
        self._frames = deque(frames(planned, self._server.script))
        self._server.counters.add({"num_requests_running": 1})
        self._step()

    def _step(self) -> None:
        """Write all that is due; come back for the rest."""
        self._timer = None
        while self._frames and not self._transport.is_closing():
            wait = self._truth.arrival_s + self._frames[0].at_s - time.perf_counter()
            if wait > 0.0005:
                self._timer = asyncio.get_running_loop().call_later(wait, self._step)
                return
            self._write(self._frames.popleft())
        if not self._transport.is_closing():
            self._end_stream()

    def _write(self, frame: Write) -> None:
        if frame.tokens:
            now = time.perf_counter()
            truth = self._truth
            truth.first_token_s = now if truth.first_token_s is None else truth.first_token_s
            truth.last_token_s = now
            truth.tokens += frame.tokens
            self._server.counters.add({"generation_tokens": frame.tokens})
        self._transport.write(frame.data)

    def _end_stream(self) -> None:
        if self._ends == "end":
            self._finish("length", self._server.script.count_s)
            self._after_answer()
        elif self._ends == "close":
            self._transport.close()
        elif self._ends == "reset":
            self.break_off()
        elif self._ends == "die":
            self._server.die()

    def _finish(self, how: str, count_s: float = 0.0) -> None:
        """Count the end of a request, so long after it."""
        assert self._ask is not None
        if count_s:
            asyncio.get_running_loop().call_later(count_s, self._server.ended, self._ask, how)
        else:
            self._server.ended(self._ask, how)
        self._ask = None

    def _after_answer(self) -> None:
        self._idle = True
        script = self._server.script
        if not script.keep_alive or not self._parser.should_keep_alive():
            self._transport.close()
        elif script.close_idle_s is not None:
            self._timer = asyncio.get_running_loop().call_later(script.close_idle_s, self._transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _check_fields(body: bytes, refused: str) -> None:
    """Refuse a request that has one of these fields, anywhere; ``Refusal`` names it."""
    if found := [name for name in refused.split(",") if name and f'"{name}":'.encode() in body]:
        raise Refusal(f"unknown field {found[0]}")


Reply = tuple[int, bytes] | tuple[int, bytes, str]


def _no_route(path: str) -> Reply:
    known = path == "/v1/completions" or any(path == other for _, other in _ROUTES)
    return _as_json({"detail": "Method Not Allowed"}, 405) if known else _as_json({"detail": "Not Found"}, 404)


def _as_json(value: object, status: int = 200) -> Reply:
    return status, json.dumps(value).encode()


def _clear_cache(server: FakeState, _: str, asked: dict[str, Any]) -> Reply:
    tier = asked.get("tier", "l1")
    if tier != "l1":
        return _as_json({"detail": f"tier {tier!r} not supported; only 'l1'"}, 400)
    server.caches.clear_tier()
    return _as_json({"status": "ok", "cleared": {"tier": "l1"}})


def _models(server: FakeState, _: str, __: dict[str, Any]) -> Reply:
    model = {"id": MODEL, "object": "model", "owned_by": "vllm", "root": MODEL}
    return _as_json({"object": "list", "data": [model | {"max_model_len": server.script.max_model_len}]})


def _metrics(server: FakeState, _: str, __: dict[str, Any]) -> Reply:
    if server.requests >= server.script.metrics_fault_from and server.metrics_faults < server.script.metrics_faults:
        server.metrics_faults += 1
        return _no_route("")
    return 200, server.counters.expose(), "text/plain; version=0.0.4; charset=utf-8"


_ROUTES: dict[tuple[str, str], Callable[[FakeState, str, dict[str, Any]], Reply | None]] = {
    ("GET", "/health"): lambda server, _, __: (200 if server.script.healthy else 503, b"", "text/plain"),
    ("GET", "/version"): lambda _, __, ___: _as_json({"version": "0.32.0"}),
    ("GET", "/v1/models"): _models,
    ("GET", "/metrics"): _metrics,
    ("POST", "/reset_prefix_cache"): lambda server, query, _: _as_json({"success": server.reset(query)}),
    ("GET", "/status"): lambda server, _, __: _as_json(server.lmcache_status()),
    ("POST", "/cache/clear"): _clear_cache,
    ("GET", "/fake/truth"): lambda server, _, __: _as_json([dataclasses.asdict(truth) for truth in server.truth.values()]),
    ("POST", "/fake/script"): lambda server, _, changes: server.take_script(changes),
    ("POST", "/fake/counters"): lambda server, _, amounts: server.counters.add(amounts),
    ("POST", "/fake/close"): lambda server, _, __: server.close_idle(),
    ("POST", "/fake/die"): lambda server, _, __: server.die(),
}
"""What each path answers, from its query and the JSON object that was sent; ``None``: an empty object."""
