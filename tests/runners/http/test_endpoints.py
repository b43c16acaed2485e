"""Endpoints: found by name, and one that is only registered drives a whole run."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kvbench.runners.base import Clock, ClosedLoop, ListSource, Request
from kvbench.runners.http.client import Client
from kvbench.runners.http.endpoints.chunk import read_chunk, read_error
from kvbench.runners.http.endpoints.completions import Completions
from kvbench.runners.http.endpoints.endpoint import ENDPOINTS, Event, Usage
from kvbench.runners.http.exchange import Exchange
from kvbench.testing.fake_script import MODEL, Script
from kvbench.testing.fake_server import serving
from tests.runners.http.test_client import requests


class Chat:
    """Messages, and a chat's events."""

    name = "test-chat"
    path = "/v1/chat/completions"
    read = staticmethod(read_chunk)
    read_error = staticmethod(read_error)

    def encode(self, request: Request, model: str, ids: bool, cache_salt: str | None) -> bytes:
        text = " ".join(map(str, request.prompt))
        return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], "stream": True}).encode()


class Lines:
    """An API of its own: a word an event, and a count at the end; on a path that the fake server knows."""

    name = "test-lines"
    path = "/v1/completions"

    def encode(self, request: Request, model: str, ids: bool, cache_salt: str | None) -> bytes:
        return Completions().encode(request, model, ids, cache_salt)

    def read(self, event: bytes) -> Event:
        chunk = json.loads(event)
        return Event(bool(chunk["choices"]), bool(chunk["choices"]), usage=None if chunk["choices"] else Usage(completion_tokens=8))

    def read_error(self, body: bytes) -> str:
        return f"{len(body)} bytes"


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for endpoint in (Chat(), Lines()):
        ENDPOINTS.register(endpoint)
    yield
    for name in ("test-chat", "test-lines"):
        ENDPOINTS.unregister(name)


def send(url: str, endpoint: str, count: int) -> list[Exchange]:
    ended: list[Exchange] = []
    client = Client(url, MODEL, Clock(), endpoint=endpoint)
    client.run(ListSource(requests(count)), ClosedLoop(1), lambda _, exchange: ended.append(exchange))
    return ended


def test_endpoints_are_found_by_name() -> None:
    assert set(ENDPOINTS.all()) == {"completions", "test-chat", "test-lines"}
    ENDPOINTS.unregister("test-chat")
    assert set(ENDPOINTS.all()) == {"completions", "test-lines"}
    with pytest.raises(KeyError):
        ENDPOINTS["test-chat"]


def test_a_registered_endpoint_reads_the_stream_its_own_way() -> None:
    with serving(Script(first_token_s=0.01)) as server:
        ended = send(server.url, "test-lines", 3)
    assert [(one.error, one.output_tokens, one.chunk_tokens) for one in ended] == [(None, 8, [1] * 8)] * 3
    with serving(Script(fault="status")) as server:
        (exchange,) = send(server.url, "test-lines", 1)
    assert exchange.error is not None
    assert exchange.error.message.startswith("HTTP 500: ")
    assert exchange.error.message.endswith(" bytes")


def chat_events() -> bytes:
    """A role first, which is no token; then eight tokens, and the usage."""
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    events += [{"choices": [{"delta": {"content": f" {number}"}}]} for number in range(8)]
    events += [{"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 8}}]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"


def test_a_chat_endpoint_sends_messages_to_its_own_path() -> None:
    def serve() -> bytes:
        connection, _ = listener.accept()
        with connection:
            data = b""
            while not data.endswith(b"}"):
                data += connection.recv(65536)
            body = chat_events()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return data

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(10)
        served = pool.submit(serve)
        (exchange,) = send(f"http://127.0.0.1:{listener.getsockname()[1]}", "test-chat", 1)
        head, _, body = served.result().partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert json.loads(body)["messages"] == [{"role": "user", "content": " ".join(map(str, range(20)))}]
    assert (exchange.error, exchange.output_tokens, exchange.chunk_tokens) == (None, 8, [1] * 8)
    assert exchange.prompt_tokens == 20
