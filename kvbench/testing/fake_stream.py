"""What the fake server writes for one completion: when, which bytes, and how many tokens are in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kvbench.models.units import ceil_div
from kvbench.testing.fake_script import Script

PIECE_GAP_S = 0.001


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for."""

    request_id: str
    model: str
    prompt: list[int]
    tokens: int
    usage: bool
    counts: bool
    ids: bool
    stream: bool
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """One write: seconds after the arrival of the request, bytes of the body, the tokens in them."""

    at_s: float
    data: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The writes of an answer, and how it ends: ``end`` (as HTTP goes), or a fault of the connection."""

    writes: list[Write]
    ends: str


def answer(script: Script, ask: Ask, fault: str, cached_tokens: int) -> Answer:
    """The stream that a request gets.

    Args:
        fault: the one that strikes it, or none.
        cached_tokens: what the last usage says.
    """
    tokens = min(script.fault_after, ask.tokens) if fault and fault != "length" else script.fault_after if fault else ask.tokens
    chunks = _Chunks(script, ask)
    writes = [Write(0.0, chunks.opening(), 0)] if script.empty_first or script.role_chunk else []
    if script.keepalives:
        writes.append(Write(0.0, b'data:\n\nevent: ping\ndata: {"type": "ping"}\n\n: still here\n\n', 0))
    at_s = script.first_token_s
    step = script.chunk_tokens * script.write_chunks
    for first in range(0, tokens, step):
        last = min(first + step, tokens)
        writes.append(Write(at_s, chunks.tokens(first, last, last == ask.tokens), last - first))
        at_s += script.gap_s
    ending = b""
    if fault in ("", "length"):
        if ask.usage and script.usage:
            ending += chunks.usage(tokens + script.usage_off_by, cached_tokens)
        if script.done:
            ending += b"data: [DONE]\n\n"
    else:
        ending += _FAULTY.get(fault, b"")
    if ending:
        writes.append(Write(writes[-1].at_s + script.ending_s if writes and not fault else at_s, ending, 0))
    return Answer(writes, fault if fault in ("close", "reset", "stall", "die") else "end")


def frames(planned: Answer, script: Script) -> list[Write]:
    """The same as HTTP/1.1, head first; what is due at one moment goes out in one write, as a server's buffer would have it."""
    close = b"" if script.keep_alive else b"Connection: close\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n" + close + b"Transfer-Encoding: chunked\r\n\r\n"
    framed = [Write(0.0, head, 0)]
    framed += [Write(write.at_s, b"%x\r\n%b\r\n" % (len(write.data), write.data), write.tokens) for write in planned.writes]
    if planned.ends == "end":
        framed.append(Write(framed[-1].at_s, b"0\r\n\r\n", 0))
    return [piece for write in _joined(framed) for piece in _cut(write, script.pieces)]


def _cut(write: Write, pieces: int) -> Iterator[Write]:
    """So many parts; the tokens begin with the first."""
    size = ceil_div(len(write.data), pieces)
    for number, start in enumerate(range(0, len(write.data), size)):
        yield Write(write.at_s + number * PIECE_GAP_S, write.data[start : start + size], 0 if number else write.tokens)


def whole(ask: Ask, cached_tokens: int) -> bytes:
    """The answer to a request that asks for no stream."""
    text = "".join(f" t{token}" for token in range(ask.tokens))
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}
    return json.dumps({**_head(ask), "choices": [choice], "usage": _usage(ask, ask.tokens, cached_tokens)}).encode()


KINDS = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError", 503: "ServiceUnavailableError"}
"""What vLLM calls an error of this status."""


def error_body(status: int, message: str, kind: str | None = None, param: str | None = None) -> bytes:
    """An error as vLLM words it; ``kind``: its ``type``, if it is not the one of its status."""
    kind = kind or KINDS.get(status, "Error")
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": status}}).encode()


def error_event(body: bytes) -> bytes:
    """An error within a stream, and the stream's end."""
    return b"data: " + body + b"\n\ndata: [DONE]\n\n"


_FAULTY = {
    "error": error_event(error_body(500, "the script says so")),
    "garbage": b"data: \x00\xfe\xffthis is not JSON\n\n",
    "truncate": b'data: {"id": "x", "choices": [{"index": 0, "te\n\n',
    "cut": b'data: {"id": "x", "choices": [{"index": 0, "te',
}


def _joined(writes: list[Write]) -> Iterator[Write]:
    """What is due at one moment goes out in one write, as a server's buffer would have it."""
    for at_s, due in groupby(writes, key=lambda write: write.at_s):
        pieces = list(due)
        yield Write(at_s, b"".join(write.data for write in pieces), sum(write.tokens for write in pieces))


def _head(ask: Ask) -> dict[str, Any]:
    return {"id": f"cmpl-{ask.request_id}", "object": "text_completion", "created": 0, "model": ask.model}


def _usage(ask: Ask, tokens: int, cached_tokens: int | None) -> dict[str, Any]:
    counts = {"prompt_tokens": len(ask.prompt), "total_tokens": len(ask.prompt) + tokens, "completion_tokens": tokens}
    return counts if cached_tokens is None else {**counts, "prompt_tokens_details": {"cached_tokens": cached_tokens}}


class _Chunks:
    """The events of one stream, put together by hand: a server that spends its time in ``json.dumps`` would hide the client's."""

    def __init__(self, script: Script, ask: Ask) -> None:
        self._script, self._ask = script, ask
        self._chat = script.role_chunk or script.reasoning_tokens > 0
        head = _head(ask) | ({"object": "chat.completion.chunk"} if self._chat else {})
        if script.padding_bytes:
            head["padding"] = "x" * script.padding_bytes
        self._start = f'data: {json.dumps(head, separators=(",", ":"))[:-1]},"choices":['
        self._counts = ask.counts and script.counts_chunks
        self._ids = ask.ids and script.knows_ids
        self._prompt_tokens = len(ask.prompt)

    def opening(self) -> bytes:
        """A chunk without a token."""
        content = '"delta":{"role":"assistant","content":""}' if self._script.role_chunk else '"text":""'
        return self._event(f'{{"index":0,{content},"finish_reason":null}}', 0)

    def tokens(self, first: int, last: int, ends: bool) -> bytes:
        """Chunks of the tokens ``first .. last - 1``; ``ends``: they are the last of the answer."""
        step, events = self._script.chunk_tokens, []
        for start in range(first, last, step):
            stop = min(start + step, last)
            text = "" if self._script.textless else "".join(f" t{token}" for token in range(start, stop))
            if not self._chat:
                content = f'"text":"{text}"'
            else:
                content = f'"delta":{{"{"reasoning" if start < self._script.reasoning_tokens else "content"}":"{text}"}}'
            reason = '"length"' if ends and stop == last else "null"
            choice = f'{{"index":0,{content},"logprobs":null,"finish_reason":{reason}{self._told_ids(start, stop)}}}'
            events.append(self._event(choice, stop))
        return b"".join(events)

    def usage(self, tokens: int, cached_tokens: int) -> bytes:
        """The last usage, in a chunk without a choice."""
        usage = _usage(self._ask, tokens, cached_tokens if self._script.says_cached else None)
        start = f"{self._start}]" if self._script.usage_choices else self._start.removesuffix(',"choices":[')
        return f'{start},"usage":{json.dumps(usage)}}}\n\n'.encode()

    def _told_ids(self, start: int, stop: int) -> str:
        if not self._ids:
            return ""
        prompt = f',"prompt_token_ids":{self._ask.prompt}' if start == 0 else ""
        return f'{prompt},"token_ids":{list(range(start, stop))}'

    def _event(self, choice: str, total: int) -> bytes:
        if not self._counts:
            return f"{self._start}{choice}]}}\n\n".encode()
        sum_ = self._prompt_tokens + total
        usage = f'"usage":{{"prompt_tokens":{self._prompt_tokens},"total_tokens":{sum_},"completion_tokens":{total}}}'
        return f"{self._start}{choice}],{usage}}}\n\n".encode()
