"""What a streamed answer is made of: server-sent events, and the completion chunk in each.

What an event may hold is declared, and read by msgspec, in a small part of the time that the standard library's parser and checks by hand
take, in which others' stamps wait. Fields that are not declared are skipped; one of the wrong type is an error.

Events: the WHATWG specification (HTML, "Server-sent events"). Chunks: OpenAI's completions and chat completions as vLLM 0.32 sends them
(``entrypoints/openai/completion/serving.py``).
"""

from __future__ import annotations

from typing import Any

import msgspec

DONE = b"[DONE]"
BOM = b"\xef\xbb\xbf"
"""What a stream may begin with, and says nothing."""


class EventStream:
    """Cuts a byte stream into the data of its events, however it was cut into reads. Lines may be of any length."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr, self._at_start = False, True

    @property
    def unfinished(self) -> bool:
        """Whether an event has begun whose end has not been read."""
        return bool(self._data) or any(self._line)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that this read completes, in order."""
        if self._after_cr and data.startswith(b"\n"):  # a line break that was cut in two
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        *lines, rest = data.split(b"\n") if b"\r" not in data else data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[bytes] = []
        for line in lines:
            if self._line:
                line = b"".join([*self._line, line])
                self._line = []
            if self._at_start:
                line, self._at_start = line.removeprefix(BOM), False
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
        if rest:
            self._line.append(rest)
        return events


class PromptDetails(msgspec.Struct, frozen=True):
    """Of the prompt's tokens those that were cached, wherever (vLLM: with ``--enable-prompt-tokens-details``)."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the server counts them; of the output, up to here."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


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

    @property
    def has_text(self) -> bool:
        """Whether there is text of any kind, and so at least one token."""
        delta = self.delta
        return bool(self.text or (delta is not None and (delta.content or delta.reasoning or delta.reasoning_content)))


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


def read_chunk(data: bytes) -> Chunk:
    """Read the data of an event.

    Raises:
        ValueError: not JSON, or not a chunk of a completion.
    """
    chunk = _decoder.decode(data)
    if chunk.choices is None and chunk.failure is None:
        raise ValueError("it has neither choices nor an error")
    return chunk


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
