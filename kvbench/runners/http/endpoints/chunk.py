"""The event of a streamed answer as OpenAI's completions and chat completions have it, and vLLM 0.32 sends it.

What it may hold is declared, and read by msgspec, in a small part of the time that the standard library's parser and checks by hand take,
in which others' stamps wait. Fields that are not declared are skipped; one of the wrong type is an error.

See vLLM's ``entrypoints/openai/completion/serving.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kvbench.runners.http.endpoints.endpoint import Event, Usage


class Delta(msgspec.Struct, frozen=True):
    """What a chunk of a chat adds. Reasoning is tokens as well; a role is not."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """What a chunk of a completion (``text``) or a chat (``delta``) adds."""

    text: str | None = None
    delta: Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    """The data of one event: a choice and perhaps the usage up to here, or only the usage at last, or an error."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None

    @property
    def failure(self) -> str | None:
        """Why the server gave the request up, if it did."""
        if self.error is not None or self.object == "error":
            return error_message(self.error or self.message)
        if self.choices and self.choices[0].finish_reason in ("abort", "error"):
            return f"the server gave the request up (finish_reason {self.choices[0].finish_reason})"
        return None


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Event:
    """Read the data of an event; ``ValueError`` where it is not JSON, or not a chunk of a completion."""
    chunk = _decoder.decode(data)
    failure = chunk.failure
    if chunk.choices is None and chunk.usage is None and failure is None:
        raise ValueError("it has neither choices nor usage nor an error")
    if not chunk.choices:
        return Event(usage=chunk.usage, failure=failure)
    choice = chunk.choices[0]
    delta = choice.delta
    has_text = bool(choice.text or (delta is not None and (delta.content or delta.reasoning or delta.reasoning_content)))
    return Event(True, has_text, choice.token_ids, chunk.usage, failure)


def error_message(error: Any) -> str:
    """What the server says went wrong, in one line."""
    if isinstance(error, dict):
        kind, message = error.get("type"), error.get("message")
        error = f"{kind}: {message}" if kind and message else message or kind
    return " ".join(str(error or "no message").split())[:300]


def read_error(body: bytes) -> str:
    """The server's own words in the body of an answer that is no stream."""
    try:
        chunk = _decoder.decode(body)
    except (ValueError, RecursionError):
        chunk = Chunk()
    return error_message(chunk.error or chunk.message or body.decode(errors="replace"))
