"""Trace files: requests as they were once asked, a JSON object a line. Read line by line and checked; a fault is named with its line.

Two formats, told apart by the first line:

- Mooncake's (FAST '25): ``timestamp`` in ms, ``input_length``, ``output_length``, and ``hash_ids``, one for each block of 512 tokens, the
  last one perhaps not full. Equal ids mean an equal prompt up to and including that block.
- the user's own requests: ``prompt`` or ``messages`` text or ``token_ids``; optional ``timestamp`` in seconds, and ``output_tokens`` (or
  ``max_tokens``).

The first line also decides whether there are times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.workloads.prompt_text import PromptText

BLOCK_TOKENS = 512
"""What a hash id of a Mooncake trace stands for."""

MOST_TOKENS = 10**9
MOST_ID = 2**62
CONTENTS = ("prompt", "messages", "token_ids")
MILLISECONDS = 10**11
"""A time in seconds that is larger lies beyond the year 5000, so it is not in seconds."""
GZIP = b"\x1f\x8b"
"""How a packed file begins."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One line. ``ids`` are hash ids of blocks, or token ids (:attr:`TraceFile.block_tokens`). ``None``: the line does not say.

    ``time_s`` is in seconds on the trace's own clock.
    """

    line: int
    time_s: float | None
    prompt_tokens: int
    output_tokens: int | None
    ids: Sequence[int]


class TraceFile:
    """A trace on disk. Going through it reads it from the start; only one line is held."""

    def __init__(self, path: Path, text: PromptText, block_tokens: int = BLOCK_TOKENS, vocab: int | None = None) -> None:
        """Look at the first line.

        Args:
            text: turns text into token ids.
            block_tokens: what a hash id stands for.
            vocab: token ids are below this; ``None`` where no model says so.

        Raises:
            UsageError: the file cannot be read, is empty, or has neither format.
        """
        self.path, self._text, self._vocab = path, text, vocab
        first = next(self._lines(), None)
        if first is None:
            raise UsageError(f"--trace {path}: the file holds no request")
        self.block_tokens = block_tokens if "hash_ids" in first.values else None
        """What a hash id stands for; ``None``: requests are known by their tokens."""
        self.has_times = "timestamp" in first.values
        """Whether the requests have times."""
        if self.block_tokens is None and not any(name in first.values for name in CONTENTS):
            found = ", ".join(first.values) or "none"
            raise first.fault(f"neither hash_ids (Mooncake's format) nor one of {', '.join(CONTENTS)}; its keys: {found}")

    def __iter__(self) -> Iterator[TracedRequest]:
        """Every request, in order.

        Raises:
            UsageError: a line is broken, lacks a field, contradicts itself, or lies before the one ahead of it.
        """
        before = -math.inf
        for line in self._lines():
            time = self._time(line)
            if time is not None:
                if time < before:
                    raise line.fault(f"timestamp {line.values['timestamp']} lies before that of the line ahead; sort the file by time")
                before = time
            if self.block_tokens is None:
                yield self._own_request(line, time)
            else:
                yield _hashed_request(line, time, self.block_tokens)

    def _lines(self) -> Iterator[_TraceLine]:
        """The objects of the file; blank lines hold none."""
        try:
            with self.path.open("rb") as file:
                for number, text in enumerate(file, start=1):
                    if text.strip():
                        yield _TraceLine(self.path, number, _parse(self.path, number, text))
        except OSError as error:
            raise UsageError(f"--trace {self.path}: cannot be read ({error.strerror})") from None

    def _time(self, line: _TraceLine) -> float | None:
        """The line's time in seconds."""
        if not self.has_times:
            if "timestamp" in line.values:
                raise line.fault("a timestamp, and the lines ahead have none; give all or none")
            return None
        value = line.values.get("timestamp")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise line.fault(f"timestamp is a number of {'milliseconds' if self.block_tokens else 'seconds'} from 0, not {_shown(value)}")
        if self.block_tokens is None and value > MILLISECONDS:
            raise line.fault(f"timestamp {_shown(value)} is not in seconds; divide it by 1000 for milliseconds")
        if value > MILLISECONDS * 1000:
            raise line.fault(f"timestamp {_shown(value)} is not in milliseconds, or beyond the year 5000")
        return float(value) if self.block_tokens is None else value / 1000

    def _own_request(self, line: _TraceLine, time: float | None) -> TracedRequest:
        tokens = self._tokens(line)
        if not tokens:
            raise line.fault("the prompt holds no token")
        if self._vocab is not None and max(tokens) >= self._vocab:
            raise line.fault(f"token id {max(tokens):,}, and the model's vocabulary ends at {self._vocab - 1:,}")
        name = next((name for name in ("output_tokens", "max_tokens") if line.values.get(name) is not None), None)
        return TracedRequest(line.number, time, len(tokens), None if name is None else line.integer(name, 0), tokens)

    def _tokens(self, line: _TraceLine) -> list[int]:
        """The token ids of a request of the user's own."""
        given = [name for name in CONTENTS if name in line.values]
        if len(given) != 1:
            raise line.fault(f"one of {', '.join(CONTENTS)} is expected, not {' and '.join(given) or 'none'}")
        if given == ["token_ids"]:
            return line.integers("token_ids", 2**31)
        if given == ["messages"]:
            return self._conversation(line)
        text = line.values["prompt"]
        if not isinstance(text, str):
            raise line.fault(f"prompt is a text, not {_shown(text)}")
        return self._text.prompt(text)

    def _conversation(self, line: _TraceLine) -> list[int]:
        messages = line.values["messages"]
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise line.fault(f"messages is a list of objects with role and content, not {_shown(messages)}")
        try:
            return self._text.conversation([message | {"content": _flat(message.get("content"))} for message in messages])
        except ValueError as error:
            raise line.fault(str(error)) from None


def _hashed_request(line: _TraceLine, time: float | None, size: int) -> TracedRequest:
    """A request of Mooncake's format, in blocks of ``size`` tokens."""
    length, ids = line.integer("input_length", 1), line.integers("hash_ids", MOST_ID)
    needed = -(-length // size)
    if len(ids) != needed:
        raise line.fault(
            f"input_length {length:,} takes {needed:,} blocks of {size}, and there are {len(ids):,} hash_ids; "
            "--trace-block-size says how many tokens one stands for"
        )
    if len(set(ids)) < len(ids):
        twice = next(hash_id for place, hash_id in enumerate(ids) if hash_id in ids[:place])
        raise line.fault(f"hash id {twice} comes twice; an id stands for everything before it too")
    return TracedRequest(line.number, time, length, line.integer("output_length", 0), ids)


@dataclass(frozen=True, slots=True)
class _TraceLine:
    """One line of the file as an object, and how its faults are said."""

    file: Path
    number: int
    values: dict[str, Any]

    def fault(self, what: str) -> UsageError:
        """The error for a fault of this line."""
        return UsageError(f"--trace {self.file}: line {self.number}: {what}")

    def integer(self, name: str, least: int) -> int:
        """A count of tokens."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TOKENS:
            raise self.fault(f"{name} is a whole number from {least} to {MOST_TOKENS:,}, not {_shown(value)}")
        return value

    def integers(self, name: str, end: int) -> list[int]:
        """A list of ids below ``end``."""
        values = self.values.get(name)
        if not isinstance(values, list):
            raise self.fault(f"{name} is a list of whole numbers, not {_shown(values)}")
        wrong = next((value for value in values if type(value) is not int or not 0 <= value < end), None)
        if wrong is not None:
            raise self.fault(f"{name} are whole numbers from 0 to {end - 1:,}, not {_shown(wrong)}")
        return values


def _parse(path: Path, number: int, text: bytes) -> dict[str, Any]:
    if number == 1 and text.startswith(GZIP):
        raise UsageError(f"--trace {path}: a gzip file; unpack it first (gunzip --keep)")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--trace {path}: line {number}: not JSON; a trace has one JSON object a line") from None
    if not isinstance(values, dict):
        raise UsageError(f"--trace {path}: line {number}: no object but {_shown(values)}; a trace has one JSON object a line")
    return values


def _shown(value: object) -> str:
    """A wrong value, short enough for one line; a field that is not there is null."""
    text = json.dumps(value)
    return "missing" if value is None else text if len(text) <= 40 else f"{text[:37]}..."


def _flat(content: Any) -> Any:
    """A message's content as text: the texts of its parts a line each, as vLLM joins them for templates that take text."""
    if not isinstance(content, list):
        return content
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        raise ValueError("a part of a message's content is not text, and kvbench sends text only")
    return "\n".join(part["text"] for part in content)
