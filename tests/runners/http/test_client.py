"""The timed client against the fake server: exact counts, times compared with the truth, every fault named, and a run that always ends."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import resource
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.base import Clock, ClosedLoop, ListSource, OpenLoop, Pace, Request
from kvbench.runners.http import client as client_module
from kvbench.runners.http import connection as connection_module
from kvbench.runners.http.address import Address
from kvbench.runners.http.client import Client, Patience, SendReport
from kvbench.runners.http.exchange import Exchange
from kvbench.runners.http.process import SPARE, allow_connections
from kvbench.runs.records import RequestKey
from kvbench.testing.fake_script import MODEL, Script
from kvbench.testing.fake_server import serving

CERTIFICATE = Path(__file__).parent.parent / "vllm" / "data" / "localhost.pem"
Ended = list[tuple[Request, Exchange]]


def requests(count: int, prompt_tokens: int = 20, output_tokens: int = 8) -> list[Request]:
    return [
        Request(RequestKey("none", 0, "sequential", 0, place, f"r{place}", place), list(range(place, place + prompt_tokens)), output_tokens)
        for place in range(count)
    ]


TWO = ClosedLoop(2)


def changed(script: Script) -> str:
    """What the script has of its own, for the name of a test."""
    values = {name: getattr(script, name) for name in Script.__slots__}
    return " ".join(f"{name}={value}" for name, value in values.items() if value != getattr(Script(), name)) or "plain"


def send(url: str, count: int = 6, pace: Pace = TWO, **options: Any) -> tuple[list[Exchange], SendReport]:
    """Send requests; the exchanges in the order of the requests. Each was handed over exactly once."""
    ended: Ended = []
    options.setdefault("patience", Patience(failures=10**6))
    load = Client(url, MODEL, Clock(), **options).run(ListSource(requests(count)), pace, lambda *one: ended.append(one))
    assert sorted(request.key.position for request, _ in ended) == list(range(count))
    return [exchange for _, exchange in sorted(ended, key=lambda one: one[0].key.position)], load


def kinds(exchanges: list[Exchange]) -> list[str | None]:
    return [None if exchange.error is None else exchange.error.kind for exchange in exchanges]


@pytest.fixture(params=["uvloop", "asyncio"])
def _each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setattr(client_module, "new_event_loop", asyncio.new_event_loop)
    else:
        pytest.importorskip("uvloop")


# What it measures.


@pytest.mark.usefixtures("_each_loop")
@pytest.mark.parametrize(
    ("script", "chunk_tokens"),
    [
        (Script(), [1] * 8),
        (Script(gap_s=0.001), [1] * 8),
        (Script(chunk_tokens=3, gap_s=0.001), [3, 3, 2]),
        (Script(write_chunks=3, gap_s=0.001), [1] * 8),
        (Script(pieces=3, gap_s=0.004), [1] * 8),
        (Script(empty_first=True, first_token_s=0.01), [1] * 8),
        (Script(role_chunk=True, first_token_s=0.01), [1] * 8),
        (Script(reasoning_tokens=4), [1] * 8),
        (Script(textless=True), [1] * 8),
        (Script(padding_bytes=200_000), [1] * 8),
        (Script(counts_chunks=False), [1] * 8),
        (Script(counts_chunks=False, chunk_tokens=3), None),
        (Script(usage=False), [1] * 8),
        (Script(keep_alive=False), [1] * 8),
    ],
    ids=lambda value: changed(value) if isinstance(value, Script) else None,
)
def test_tokens_are_exact_and_times_agree_with_the_truth(script: Script, chunk_tokens: list[int] | None) -> None:
    with serving(script) as server:
        exchanges, load = send(server.url)
        assert load.gave_up is None
        assert kinds(exchanges) == [None] * 6
        assert server.requests == 6
        for place, exchange in enumerate(exchanges):
            truth = server.truth[f"r{place}"]
            assert (exchange.chunk_tokens, exchange.output_tokens) == (chunk_tokens, truth.tokens)
            assert exchange.prompt_tokens == truth.prompt_tokens == 20
            assert exchange.sent_s is not None
            assert exchange.first_token_s is not None
            assert exchange.last_token_s is not None
            assert truth.first_token_s is not None
            assert truth.last_token_s is not None
            times = [exchange.scheduled_s, exchange.sent_s, *exchange.token_times_s, exchange.end_s]
            assert times == sorted(times)
            # Sent before it arrived, and seen after it was written: a client's time can only be longer.
            assert exchange.first_token_s - exchange.sent_s >= truth.first_token_s - truth.arrival_s >= script.first_token_s - 0.001
            assert exchange.last_token_s - exchange.sent_s >= truth.last_token_s - truth.arrival_s


def test_the_last_token_is_not_the_end_of_the_stream() -> None:
    with serving(Script(ending_s=0.05)) as server:
        (exchange,), _ = send(server.url, 1)
    assert exchange.last_token_s is not None
    assert exchange.end_s - exchange.last_token_s > 0.03


def test_the_request_holds_exactly_the_prompt() -> None:
    with serving() as server:
        send(server.url, 1)
        (body,) = map(json.loads, server.bodies)
    assert body["prompt"] == list(range(20))
    assert (body["max_tokens"], body["ignore_eos"], body["temperature"], body["stream"]) == (8, True, 0, True)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert "return_token_ids" not in body


def test_ids_of_the_output_are_there_when_asked_for() -> None:
    with serving(Script(chunk_tokens=3)) as server:
        exchanges, _ = send(server.url, token_ids=True)
    assert [(exchange.token_ids, exchange.chunk_tokens) for exchange in exchanges] == [(list(range(8)), [3, 3, 2])] * 6


def test_cached_tokens_are_those_of_the_usage() -> None:
    with serving(Script(pool_tokens=1000, block_size=4)) as server:
        assert [exchange.cached_tokens for exchange in send(server.url, 2, ClosedLoop(1))[0]] == [0, 0]
        assert [exchange.cached_tokens for exchange in send(server.url, 2, ClosedLoop(1))[0]] == [16, 16]
        server.script = Script(says_cached=False)
        assert send(server.url, 1)[0][0].cached_tokens is None


# Faults: each named, none sent again, tokens before it kept.


@pytest.mark.usefixtures("_each_loop")
@pytest.mark.parametrize(
    ("fault", "kind", "tokens", "status"),
    [
        ("status", "http_status", 0, 500),
        ("error", "server_error", 4, 200),
        ("close", "closed", 4, 200),
        ("reset", "closed", 4, 200),
        ("garbage", "bad_event", 4, 200),
        ("truncate", "bad_event", 4, 200),
        ("cut", "bad_event", 4, 200),
        ("end", "no_done", 4, 200),
        ("http", "bad_http", 0, None),
        ("length", "wrong_length", 4, 200),
    ],
)
@pytest.mark.parametrize("every", [1, 3])
def test_a_fault_is_named_and_nothing_is_sent_again(fault: str, kind: str, tokens: int, status: int | None, every: int) -> None:
    with serving(Script(gap_s=0.001, fault=fault, fault_after=4, fault_every=every)) as server:
        exchanges, _ = send(server.url, 6, ClosedLoop(1))
        assert server.requests == 6
    assert kinds(exchanges) == [kind if place % every == 0 else None for place in range(1, 7)]
    for exchange in exchanges[every - 1 :: every]:
        assert exchange.error is not None
        assert exchange.error.status == status
        assert (exchange.output_tokens, len(exchange.token_times_s)) == (tokens, tokens)
        assert "\n" not in exchange.error.message


@pytest.mark.parametrize(("status", "kind"), [(400, "BadRequestError"), (429, "Error"), (503, "ServiceUnavailableError")])
def test_the_servers_own_words_are_kept(status: int, kind: str) -> None:
    with serving(Script(fault="status", fault_status=status)) as server:
        (exchange,), _ = send(server.url, 1)
    assert exchange.error is not None
    assert (exchange.error.status, exchange.error.message) == (status, f"HTTP {status}: {kind}: the script says so")


def test_an_error_as_the_first_event_is_a_failure_without_a_token() -> None:
    with serving(Script(fault="error")) as server:
        (exchange,), _ = send(server.url, 1)
    assert kinds([exchange]) == ["server_error"]
    assert (exchange.first_token_s, exchange.output_tokens) == (None, 0)


def test_a_stall_is_a_timeout() -> None:
    with serving(Script(fault="stall", fault_after=3, gap_s=0.001)) as server:
        exchanges, _ = send(server.url, 2, patience=Patience(request_s=0.1))
        assert server.requests == 2
    assert kinds(exchanges) == ["timeout"] * 2
    assert [exchange.output_tokens for exchange in exchanges] == [3, 3]


@pytest.mark.parametrize(
    ("script", "kind", "tokens"),
    [
        (Script(done=False), "no_done", 8),
        (Script(usage_off_by=1), "miscounted", 8),
        (Script(counts_chunks=False, usage=False), "uncounted", None),
        (Script(fault="length", fault_after=9), "wrong_length", 9),
        (Script(fault="length", fault_after=0), "wrong_length", 0),
    ],
    ids=lambda value: changed(value) if isinstance(value, Script) else None,
)
def test_an_answer_that_does_not_add_up_is_a_failure(script: Script, kind: str, tokens: int | None) -> None:
    with serving(script) as server:
        (exchange,), _ = send(server.url, 1)
    assert (kinds([exchange]), exchange.output_tokens) == ([kind], tokens)


@settings(max_examples=15, deadline=None)
@given(
    chunk_tokens=st.integers(1, 5), write_chunks=st.integers(1, 4), pieces=st.integers(1, 4), gap_ms=st.integers(0, 1), role=st.booleans()
)
def test_no_shape_of_a_stream_changes_what_is_counted(chunk_tokens: int, write_chunks: int, pieces: int, gap_ms: int, role: bool) -> None:
    script = Script(gap_s=gap_ms / 1e3, chunk_tokens=chunk_tokens, write_chunks=write_chunks, pieces=pieces, role_chunk=role)
    with serving(script) as server:
        (exchange,), _ = send(server.url, 1)
    assert exchange.error is None
    assert exchange.chunk_tokens == [min(chunk_tokens, 8 - start) for start in range(0, 8, chunk_tokens)]


# Connections.


def test_connections_are_kept() -> None:
    with serving() as server:
        send(server.url, 20, ClosedLoop(3))
        assert server.connections_made == 4  # one of them asked whether the others are accepted


def test_nothing_is_sent_before_the_server_has_accepted_every_connection() -> None:
    """A server that is slow to accept: the wait would be in the first times. The connection that is accepted last asks, and is answered."""
    seen: list[bytes] = []

    def serve() -> None:
        connections = [listener.accept()[0] for _ in range(4)]
        seen.append(connections[-1].recv(1000))
        for connection in connections[:-1]:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
        connections[-1].sendall(b"HTTP/1.1 404 -\r\nContent-Length: 0\r\n\r\n")
        for connection in connections[:-1]:
            connection.settimeout(10)
            seen.append(connection.recv(10))
        for connection in connections:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(10)
        serving_all = pool.submit(serve)
        exchanges, _ = send(f"http://127.0.0.1:{listener.getsockname()[1]}/base", 3, ClosedLoop(3))
        serving_all.result()
    assert seen[0].startswith(b"GET /base/health HTTP/1.1\r\n")
    assert seen[1:] == [b"POST /base"] * 3
    assert kinds(exchanges) == ["closed"] * 3


def test_an_answer_that_sends_on_says_where_to_and_no_secret() -> None:
    def serve() -> None:
        where = b"Location: http://u:geheim@there:8000/v1/completions?key=geheim\r\n"
        with listener.accept()[0] as connection:
            connection.settimeout(10)
            connection.recv(100_000)
            connection.sendall(b"HTTP/1.1 307 -\r\n" + where + b"Content-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(10)
        answering = pool.submit(serve)
        (exchange,), _ = send(f"http://127.0.0.1:{listener.getsockname()[1]}", 1, ClosedLoop(1))
        answering.result()
    assert exchange.error is not None
    assert (exchange.error.kind, exchange.error.status) == ("http_status", 307)
    assert "HTTP 307: it sends on to http://" in exchange.error.message
    assert "there:8000/v1/completions, where kvbench does not follow: give the address there" in exchange.error.message
    assert "geheim" not in exchange.error.message


def test_a_server_that_keeps_none_gets_one_for_each_request() -> None:
    with serving(Script(keep_alive=False)) as server:
        exchanges, _ = send(server.url, 5, ClosedLoop(1))
        assert server.connections_made == 5
    assert kinds(exchanges) == [None] * 5


def test_a_connection_closed_while_idle_is_replaced() -> None:
    """The close has been seen before the next request is due: no failure."""
    with serving(Script(close_idle_s=0.0)) as server:
        exchanges, _ = send(server.url, 3, OpenLoop([0.0, 0.05, 0.1]))
        assert (server.requests, server.connections_made) == (3, 3)
    assert kinds(exchanges) == [None] * 3


def test_a_connection_closed_under_a_request_is_a_failure_of_its_own_kind_and_the_last_of_it() -> None:
    """The server closes after its first answer; the next request was written before that was seen. It is not sent again."""
    with serving(Script(first_token_s=0.02)) as server:

        def on_end(request: Request, exchange: Exchange) -> None:
            ended.append((request, exchange))
            if len(ended) == 1:  # nothing else happens in the client until this returns: it cannot see the close
                httpx.post(f"{server.url}/fake/close", json={}, trust_env=False).raise_for_status()

        ended: Ended = []
        Client(server.url, MODEL, Clock()).run(ListSource(requests(4)), ClosedLoop(1), on_end)
        assert server.requests == 3
        assert server.connections_made == 4  # the first, the one it was closed by, and one for each of the last two requests
        assert kinds([exchange for _, exchange in ended]) == [None, "closed_idle", None, None]
        error = ended[1][1].error
        assert error is not None
        assert "not sent again" in error.message


def test_a_connection_that_lay_idle_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REUSE_S", 0.0)
    with serving() as server:
        send(server.url, 4, ClosedLoop(1))
        assert server.connections_made == 5  # one ahead, which is too old already


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def tls_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.mark.usefixtures("_each_loop")
def test_https() -> None:
    with serving(Script(gap_s=0.001), tls=tls_server()) as server:
        assert server.url.startswith("https:")
        exchanges, _ = send(server.url, tls=trusting())
        assert server.connections_made == 2
    assert kinds(exchanges) == [None] * 6
    assert [exchange.chunk_tokens for exchange in exchanges] == [[1] * 8] * 6


def test_a_certificate_that_is_not_trusted_is_no_connection() -> None:
    with serving(tls=tls_server()) as server:
        (exchange,), _ = send(server.url, 1)
        assert server.requests == 0
    assert kinds([exchange]) == ["connect"]
    assert exchange.error is not None
    assert "certificate" in exchange.error.message


def test_headers_go_along() -> None:
    with serving(Script(api_key="secret")) as server:
        assert kinds(send(server.url, 1)[0]) == ["http_status"]
        assert kinds(send(server.url, 1, headers={"Authorization": "Bearer secret"})[0]) == [None]


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x:99999",
        "http://a..b",
        f"http://{'x' * 64}",
        "http://x?key=1",
        "http://x#1",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=url.split("//")[0]):
        Client(url, MODEL, Clock())


def test_a_header_that_is_given_replaces_the_clients_own_whatever_its_case() -> None:
    head = Address("http://x:1", {"host": "model.example"}).request(b"{}", "r0").partition(b"\r\n\r\n")[0].lower()
    assert head.count(b"host:") == 1
    assert b"host: model.example" in head


@pytest.mark.parametrize("header", [("X", "a\r\nHost: b"), ("", "a"), ("a b:", "c"), ("X", "ü")])
def test_a_header_that_http_cannot_carry_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="header"):
        Client("http://x", MODEL, Clock(), headers=dict([header]))


# Pace.


def most_at_once(exchanges: list[Exchange]) -> int:
    edges = [(exchange.sent_s or 0.0, 1) for exchange in exchanges] + [(exchange.end_s, -1) for exchange in exchanges]
    here = most = 0
    for _, step in sorted(edges):
        here += step
        most = max(most, here)
    return most


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_closed_loop_keeps_so_many_in_flight(concurrency: int) -> None:
    with serving(Script(first_token_s=0.01)) as server:
        exchanges, _ = send(server.url, 12, ClosedLoop(concurrency))
    assert most_at_once(exchanges) == concurrency
    assert [exchange.sent_s for exchange in exchanges] == sorted(exchange.sent_s or 0.0 for exchange in exchanges)


def test_an_open_loop_sends_on_time_whatever_the_server_does() -> None:
    """No coordinated omission: a slow answer delays no other request, and the wait counts from when it was due."""
    times = [0.0, 0.01, 0.01, 0.03, 0.05]
    with serving(Script(first_token_s=0.2)) as server:
        exchanges, _ = send(server.url, 5, OpenLoop(times))
    start = exchanges[0].scheduled_s
    assert [exchange.scheduled_s - start for exchange in exchanges] == pytest.approx(times, abs=1e-9)
    for exchange in exchanges:
        assert exchange.sent_s is not None
        assert exchange.scheduled_s <= exchange.sent_s < exchanges[0].end_s
    assert most_at_once(exchanges) == 5


def test_a_request_alone_waits_until_the_one_before_it_is_handed_over() -> None:
    with serving() as server:
        seen: list[int] = []
        Client(server.url, MODEL, Clock()).run(ListSource(requests(3)), ClosedLoop(1), lambda *_: seen.append(server.requests))
    assert seen == [1, 2, 3]


def test_no_requests_are_no_work() -> None:
    assert send("http://127.0.0.1:1", 0)[0] == []


# The end of a run.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_where_nobody_listens_the_run_is_given_up() -> None:
    exchanges, load = send(f"http://127.0.0.1:{free_port()}", 500, ClosedLoop(2), patience=Patience())
    assert load.gave_up is not None
    assert "5 requests in a row failed, the last with connect" in load.gave_up
    assert 5 <= kinds(exchanges).count("connect") <= 6
    assert kinds(exchanges).count("not_sent") == 500 - kinds(exchanges).count("connect")
    assert all(exchange.sent_s is None for exchange in exchanges)


@pytest.fixture
def _few_files() -> Iterator[None]:
    """A process that may open some files more, and may raise that."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_few_files")
def test_as_many_connections_as_the_load_needs_may_be_open() -> None:
    def allowed() -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    with serving(Script()) as server:
        for pace, most in ((ClosedLoop(10**7), 512), (OpenLoop([place / 1000 for place in range(300)]), 300 + SPARE)):
            count = len(pace.times_s) if isinstance(pace, OpenLoop) else 100
            assert kinds(send(server.url, count, pace)[0]) == [None] * count
            assert allowed() == most
    allow_connections(10**7)
    assert allowed() in (resource.getrlimit(resource.RLIMIT_NOFILE)[1], 10**7 + SPARE)


def test_a_client_out_of_files_blames_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(connection_module.SocketTransport, "connect", refuse)
    exchanges, _ = send("http://127.0.0.1:1", 1)
    assert exchanges[0].error is not None
    assert exchanges[0].error.message.startswith("the client itself has too many connections ([Errno 24]")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_request_failing_ends_the_run_soon(concurrency: int) -> None:
    with serving(Script(fault="stall")) as server:
        exchanges, load = send(server.url, 100, ClosedLoop(concurrency), patience=Patience(request_s=0.05, failures=3))
        assert server.requests <= 8 + 3
    assert load.gave_up is not None
    assert set(kinds(exchanges)) == {"timeout", "not_sent"}


def test_half_of_the_requests_failing_is_measured_to_the_end() -> None:
    with serving(Script(fault="status", fault_every=2)) as server:
        exchanges, load = send(server.url, 40, ClosedLoop(1), patience=Patience())
    assert load.gave_up is None
    assert kinds(exchanges) == [None, "http_status"] * 20


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_server_that_dies_in_mid_pass_ends_the_run_and_nothing_is_lost(concurrency: int) -> None:
    with serving(Script(gap_s=0.001, fault="die", fault_after=3, fault_every=10)) as server:
        exchanges, load = send(server.url, 200, ClosedLoop(concurrency), patience=Patience())
    found = kinds(exchanges)
    assert load.gave_up is not None
    assert found[: 10 - concurrency] == [None] * (10 - concurrency)
    assert "closed" in found
    assert found.count("closed") + found.count("closed_idle") <= concurrency
    assert found.count("not_sent") > 150
    assert set(found) - {"closed_idle"} == {None, "closed", "connect", "not_sent"}


def test_whoever_watches_the_server_can_stop_the_run() -> None:
    reasons = iter([None, None, "the server ended with 3"])
    with serving(Script(fault="stall", fault_after=2)) as server:
        ended: Ended = []
        load = Client(server.url, MODEL, Clock()).run(
            ListSource(requests(5)), ClosedLoop(2), lambda *one: ended.append(one), lambda: next(reasons, "the server ended with 3")
        )
    assert load.gave_up == "the server ended with 3"
    assert kinds([exchange for _, exchange in ended]) == ["not_sent"] * 3 + ["stopped"] * 2
    assert [exchange.output_tokens for _, exchange in ended if exchange.sent_s is not None] == [2, 2]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_ctrl_c_closes_the_sockets_and_keeps_what_had_ended() -> None:
    with serving(Script(fault="stall", fault_every=3, first_token_s=0.001)) as server:
        ended: Ended = []

        def stop() -> None:
            if server.requests == 3 and len(ended) == 2 and not interrupted:
                interrupted.append(True)
                os.kill(os.getpid(), signal.SIGINT)

        interrupted: list[bool] = []
        with pytest.raises(KeyboardInterrupt):
            Client(server.url, MODEL, Clock()).run(ListSource(requests(9)), ClosedLoop(1), lambda *one: ended.append(one), stop)
        assert kinds([exchange for _, exchange in ended]) == [None, None]
        wait_until(lambda: not server.connections)
        assert server.counters.values["request_success:abort"] == 1


def test_ctrl_c_between_end_and_delivery_loses_nothing() -> None:
    with serving(Script(first_token_s=0.05)) as server:
        ended: Ended = []

        def on_end(request: Request, exchange: Exchange) -> None:
            ended.append((request, exchange))
            if len(ended) == 1:
                wait_until(lambda: server.counters.values["request_success:length"] == 4)  # the others have ended as well
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            Client(server.url, MODEL, Clock()).run(ListSource(requests(8)), ClosedLoop(4), on_end)
    assert {request.key.position for request, _ in ended} <= set(range(4))
    assert len({request.key.position for request, _ in ended}) == len(ended) >= 1


@pytest.fixture
def _own_signal_handler() -> Iterator[None]:
    """One that asyncio leaves alone; it raises wherever the program is."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_own_signal_handler", "_each_loop")
def test_an_interrupt_from_anywhere_closes_the_sockets() -> None:
    interrupts = iter([True])
    with serving(Script(first_token_s=0.01)) as server:

        def on_end(*_: object) -> None:
            if next(interrupts, False):
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            Client(server.url, MODEL, Clock()).run(ListSource(requests(8)), ClosedLoop(2), on_end)
        wait_until(lambda: not server.connections)


@pytest.mark.usefixtures("_each_loop")
def test_an_error_of_whoever_is_told_ends_the_run() -> None:
    calls: list[int] = []

    def on_end(request: Request, _: Exchange) -> None:
        calls.append(request.key.position)
        raise OSError("no space left on device")

    with serving() as server:
        with pytest.raises(OSError, match="no space"):
            Client(server.url, MODEL, Clock()).run(ListSource(requests(20)), ClosedLoop(4), on_end)
        wait_until(lambda: not server.connections)
    assert len(calls) == 1


# The client itself.


def slow_to_write(ended: Ended) -> Callable[[Request, Exchange], None]:
    def on_end(request: Request, exchange: Exchange) -> None:
        ended.append((request, exchange))
        time.sleep(0.03)

    return on_end


def test_a_client_that_is_slow_itself_says_so() -> None:
    with serving(Script(gap_s=0.002)) as server:
        load = Client(server.url, MODEL, Clock()).run(ListSource(requests(8)), ClosedLoop(4), slow_to_write([]))
    assert max(load.lags_s) > 0.02


def test_time_that_is_taken_between_two_requests_is_no_lag() -> None:
    def on_end(request: Request, exchange: Exchange) -> None:
        time.sleep(0.2)

    with serving() as server:
        load = Client(server.url, MODEL, Clock()).run(ListSource(requests(4)), ClosedLoop(1), on_end)
    assert max(load.lags_s) < 0.15


def test_garbage_is_collected_again_after_a_run() -> None:
    seen: list[bool] = []
    with serving() as server:
        Client(server.url, MODEL, Clock()).run(ListSource(requests(1)), ClosedLoop(1), lambda *_: seen.append(gc.isenabled()))
    assert (seen, gc.isenabled()) == ([False], True)
