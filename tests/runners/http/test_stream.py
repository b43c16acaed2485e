"""Streams: however the bytes are cut into reads, the same events, tokens and times come out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvbench.runners.base import Clock, Request
from kvbench.runners.http.address import Address
from kvbench.runners.http.connection import Connection, SocketCall, SocketTransport
from kvbench.runners.http.endpoints.chunk import read_chunk
from kvbench.runners.http.endpoints.completions import ENDPOINT
from kvbench.runners.http.endpoints.endpoint import PromptDetails, Usage
from kvbench.runners.http.exchange import AnswerReader, Exchange
from kvbench.runners.http.stream import EventStream
from kvbench.runners.http.transport import Failure
from kvbench.runs.records import RequestKey
from kvbench.testing.fake_script import Script
from kvbench.testing.fake_stream import Ask, answer, frames

TOKENS = 6


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The data in pieces, none of them empty."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in pairwise(edges)]


cuts = st.lists(st.integers(0, 10**6), max_size=40)
texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)


@example(events=[["a", "b"]], ends="\r\n", places=[len(": ping\r\nevent: message\r\ndata: a\r")])
@given(events=st.lists(st.lists(texts, min_size=1, max_size=3), max_size=5), ends=st.sampled_from(["\n", "\r\n", "\r"]), places=cuts)
def test_any_cut_of_a_stream_gives_its_events(events: list[list[str]], ends: str, places: list[int]) -> None:
    comment = f": ping{ends}event: message{ends}"
    stream = "".join(comment + "".join(f"data: {line}{ends}" for line in lines) + ends for lines in events)
    reader = EventStream()
    found = [event for piece in cut(stream.encode(), places) for event in reader.feed(piece)]
    assert found == ["\n".join(lines).encode() for lines in events if lines != [""]]
    assert not reader.unfinished


def test_an_event_without_its_end_is_no_event() -> None:
    reader = EventStream()
    assert reader.feed(b"data: one\n\ndata: tw") == [b"one"]
    assert reader.unfinished
    assert reader.feed(b"o\n") == []
    assert reader.unfinished
    assert reader.feed(b"\n") == [b"two"]
    assert not reader.unfinished


@given(cuts)
def test_a_byte_order_mark_is_no_part_of_the_first_event(places: list[int]) -> None:
    reader = EventStream()
    stream = "\ufeffdata: \ufeffa\n\n\ufeffdata: b\n\ndata: c\n\n".encode()  # at the start only: else it is a field's name
    assert [event for piece in cut(stream, places) for event in reader.feed(piece)] == ["\ufeffa".encode(), b"c"]


def test_the_space_after_the_colon_is_optional_and_only_one() -> None:
    assert EventStream().feed(b"data:a\n\ndata:  b\n\n") == [b"a", b" b"]


@given(cuts)
def test_events_that_only_keep_the_connection_open_are_left_out(places: list[int]) -> None:
    stream = b'data:\n\nevent: ping\ndata: {"type": "ping"}\n\n: comment\n\ndata: a\n\nevent: error\ndata: b\n\nevent: ping\n\ndata: c\n\n'
    reader = EventStream()
    assert [event for piece in cut(stream, places) for event in reader.feed(piece)] == [b"a", b"b", b"c"]


# A whole answer through the connection that parses it.


class Socket:
    """What a connection writes to; nothing comes of it."""

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


REQUEST = Request(RequestKey("none", 0, "sequential", 0, 0, "r0", 0), [1, 2, 3], TOKENS)


def receive(reads: list[bytes], closed: bool = False) -> Exchange:
    """What a client makes of an answer that comes in these reads, read number N at second N."""
    ended: list[Exchange] = []

    async def run() -> None:
        transport = SocketTransport(Address("http://server", {}), Clock(), None, 1.0)
        connection = Connection(transport)
        connection.connection_made(cast(asyncio.Transport, Socket()))
        call = SocketCall(transport, b"", AnswerReader(REQUEST, 0.0, lambda _, exchange: ended.append(exchange), ENDPOINT))
        call.start(connection)
        for number, data in enumerate(reads):
            connection.take(float(number), data)
        if closed:
            connection.take(float(len(reads)), None)

    asyncio.run(run())
    (exchange,) = ended
    return exchange


def test_sockets_are_stamped_before_any_of_them_is_parsed() -> None:
    class SetClock(Clock):
        now = 0.0

        def __call__(self) -> float:
            return self.now

    class Slow(AnswerReader):
        def body(self, time_s: float, data: bytes) -> Failure | None:
            clock.now += 1.0  # what parsing takes
            return super().body(time_s, data)

    clock, ended = SetClock(), list[Exchange]()

    async def run() -> None:
        transport = SocketTransport(Address("http://server", {}), clock, None, 1.0)
        for _ in range(3):
            connection = Connection(transport)
            connection.connection_made(cast(asyncio.Transport, Socket()))
            SocketCall(transport, b"", Slow(REQUEST, 0.0, lambda _, exchange: ended.append(exchange), ENDPOINT)).start(connection)
            connection.data_received(stream_of(Script()))
        while len(ended) < 3:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert [exchange.first_token_s for exchange in ended] == [0.0, 0.0, 0.0]


def stream_of(script: Script, ids: bool = False) -> bytes:
    ask = Ask("r0", "fake", [1, 2, 3], TOKENS, usage=True, counts=True, ids=ids, stream=True)
    return b"".join(frame.data for frame in frames(answer(script, ask, script.fault, cached_tokens=2), script))


SHAPES = {
    "a token an event": Script(),
    "four tokens an event": Script(chunk_tokens=4),
    "two events a write": Script(gap_s=1.0, write_chunks=2),
    "an empty first chunk": Script(empty_first=True),
    "a role chunk": Script(role_chunk=True),
    "reasoning": Script(reasoning_tokens=3),
    "no text": Script(textless=True),
    "no counts": Script(counts_chunks=False),
    "no counts, several tokens": Script(counts_chunks=False, chunk_tokens=2),
    "large lines": Script(padding_bytes=5000),
    "an error": Script(fault="error", fault_after=3),
    "garbage": Script(fault="garbage", fault_after=3),
    "half an event": Script(fault="cut", fault_after=3),
}


def without_times(exchange: Exchange) -> tuple[Any, ...]:
    return (exchange.chunk_tokens, exchange.output_tokens, exchange.token_ids, exchange.prompt_tokens, exchange.error)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@given(places=cuts)
def test_any_cut_of_an_answer_gives_the_same_exchange(shape: Script, places: list[int]) -> None:
    data = stream_of(shape)
    reads = cut(data, places)
    found, whole = receive(reads), receive([data])
    assert without_times(found) == without_times(whole)
    assert len(found.token_times_s) == len(whole.token_times_s)
    assert found.token_times_s == sorted(found.token_times_s)


@given(places=cuts)
def test_a_token_is_stamped_by_the_read_that_completes_its_event(places: list[int]) -> None:
    data = stream_of(Script(gap_s=1.0))
    reads = cut(data, places)
    read_ends = list(accumulate(len(read) for read in reads))
    event_ends = [data.index(b"\n\n", data.index(b'" t%d"' % token)) + 2 for token in range(TOKENS)]
    expected = [next(float(number) for number, end in enumerate(read_ends) if end >= stop) for stop in event_ends]
    assert receive(reads).token_times_s == expected


def test_the_end_of_the_stream_is_not_the_last_token() -> None:
    data = stream_of(Script())
    usage, done = data.index(b'"choices":[]'), data.index(b"data: [DONE]")
    exchange = receive(cut(data, [usage - 200, usage, done, done + 5]))
    assert exchange.last_token_s is not None
    assert exchange.last_token_s < exchange.end_s


@pytest.mark.parametrize(
    ("shape", "chunk_tokens"),
    [
        ("a token an event", [1] * 6),
        ("four tokens an event", [4, 2]),
        ("no text", [1] * 6),
        ("an empty first chunk", [1] * 6),
        ("a role chunk", [1] * 6),
        ("reasoning", [1] * 6),
        ("no counts", [1] * 6),
        ("no counts, several tokens", None),
    ],
)
def test_tokens_are_counted_and_never_guessed(shape: str, chunk_tokens: list[int] | None) -> None:
    exchange = receive([stream_of(SHAPES[shape])])
    assert (exchange.chunk_tokens, exchange.output_tokens, exchange.error) == (chunk_tokens, TOKENS, None)
    assert (exchange.prompt_tokens, exchange.cached_tokens, exchange.token_ids) == (3, 2, None)


def test_ids_are_counted_and_kept() -> None:
    exchange = receive([stream_of(Script(chunk_tokens=4, counts_chunks=False), ids=True)])
    assert (exchange.chunk_tokens, exchange.token_ids, exchange.error) == ([4, 2], [0, 1, 2, 3, 4, 5], None)


def sse(*events: str) -> bytes:
    """An answer of these events, of a server that closes the connection to end it."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + "".join(f"data: {event}\n\n" for event in events).encode()


def test_a_usage_in_the_last_chunk_alone_is_the_sum_and_not_that_chunks() -> None:
    """As llama.cpp and others send it."""
    text = '{"choices":[{"index":0,"text":"x y z"}]}'
    last = '{"choices":[{"index":0,"text":"!","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":6}}'
    exchange = receive([sse(text, last, "[DONE]")], closed=True)
    assert (exchange.chunk_tokens, exchange.output_tokens, exchange.error) == (None, 6, None)
    assert len(exchange.token_times_s) == 2


def test_a_usage_that_goes_back_is_no_count() -> None:
    chunk = '{"choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":3,"completion_tokens":%d}}'
    exchange = receive([sse(chunk % 2, chunk % 1, "[DONE]")])
    assert exchange.error is not None
    assert (exchange.error.kind, exchange.output_tokens) == ("bad_event", 2)
    assert "from 2 tokens to 1" in exchange.error.message


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    chunk = '{"choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":3,"completion_tokens":6}}'
    assert receive([sse(chunk, "[DONE]")], closed=True).error is None
    cut_off = receive([sse(chunk)], closed=True)
    assert cut_off.error is not None
    assert cut_off.error.kind == "no_done"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error":{"message":"no quota","type":"Billing"}}', "; it begins with: Billing: no quota"),
        ('{"choices":[{"index":0,"text":"x"}]}\n', '; it begins with: {"choices":[{"index":0,"text":"x"}]}'),
        ("<html>\nSign in\n</html>\n", "; it begins with: <html> Sign in </html>"),
    ],
)
def test_an_answer_that_is_no_stream_is_shown(body: str, words: str) -> None:
    exchange = receive([f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()])
    assert exchange.error is not None
    assert exchange.error.kind in ("bad_event", "no_done")
    assert exchange.error.message.endswith(words)


def test_an_interim_answer_is_not_the_answer() -> None:
    assert receive([b"HTTP/1.1 100 Continue\r\n\r\n" + stream_of(Script())]).error is None


def test_what_follows_done_is_not_looked_at() -> None:
    chunk = '{"choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":3,"completion_tokens":6}}'
    assert receive([sse(chunk, "[DONE]", "anything")], closed=True).error is None


def test_a_connection_that_breaks_after_done_has_delivered_all() -> None:
    data = stream_of(Script())
    exchange = receive([data.removesuffix(b"0\r\n\r\n")], closed=True)
    assert (exchange.error, exchange.output_tokens) == (None, TOKENS)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ('{"error":{"message":"no room","type":"BadRequestError","code":400}}', "BadRequestError: no room"),
        ('{"error":{"message":"no room"}}', "no room"),
        ('{"error":"no\\n room"}', "no room"),
        ('{"object":"error","message":"no room","code":400}', "no room"),
        ('{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}', "the server gave the request up (finish_reason abort)"),
    ],
)
def test_a_stream_that_says_it_failed_has_failed(event: str, message: str) -> None:
    exchange = receive([sse(event, "[DONE]")])
    assert exchange.error is not None
    assert (exchange.error.kind, exchange.error.message, exchange.error.status) == ("server_error", message, 200)


@pytest.mark.parametrize("data", ["null", "[]", "{}", '{"choices":1}', '{"choices":[1]}', '{"choices":[{"token_ids":["a"]}]}', "{" * 5000])
def test_what_is_no_chunk_is_refused(data: str) -> None:
    exchange = receive([sse(data, "[DONE]")])
    assert exchange.error is not None
    assert exchange.error.kind == "bad_event"
    assert "\n" not in exchange.error.message


def test_a_chunk_as_vllm_sends_it() -> None:
    chunk = read_chunk(
        b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" a","logprobs":null,'
        b'"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[7,8]}],"usage":{"prompt_tokens":5,"total_tokens":7,'
        b'"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}},"system_fingerprint":null}'
    )
    assert (chunk.adds, chunk.token_ids, chunk.has_text) == (True, [7, 8], True)
    assert chunk.usage == Usage(5, 2, PromptDetails(4))


@pytest.mark.parametrize("part", ["content", "reasoning", "reasoning_content"])
def test_text_of_a_chat_is_text_and_a_role_is_none(part: str) -> None:
    def has_text(delta: str) -> bool:
        return read_chunk(f'{{"choices":[{{"delta":{delta}}}]}}'.encode()).has_text

    assert has_text(f'{{"{part}":"x"}}')
    assert not has_text(f'{{"role":"assistant","{part}":""}}')
    assert not has_text("{}")
