"""Trace files: requests as they were once asked, a JSON object a line. Read line by line and checked; a fault is named with its line.

The first line tells which form it is (``formats/``), and whether there are times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvbench.errors import UsageError
from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest
from kvbench.workloads.traces.registry import TRACE_READERS, reader_of

GZIP = b"\x1f\x8b"
"""How a packed file begins."""


class TraceFile:
    """A trace on disk. Going through it reads it from the start; only one line is held."""

    def __init__(self, path: Path, text: PromptText, block_tokens: int = 512, vocab: int | None = None) -> None:
        """Look at the first line.

        Args:
            text: turns text into token ids.
            block_tokens: what a hash id stands for.
            vocab: token ids are below this; ``None`` where no model says so.

        Raises:
            UsageError: the file cannot be read, is empty, or has no form that is known.
        """
        self.path = path
        first = next(self._lines(), None)
        if first is None:
            raise UsageError(f"--trace {path}: the file holds no request")
        reader = reader_of(first.values)
        if reader is None:
            forms = ", ".join(item.about for item in TRACE_READERS.all().values())
            raise first.fault(f"of no form that is known ({forms}); its keys: {', '.join(first.values) or 'none'}")
        self.reader = reader
        self.block_tokens = None if reader.block_tokens is None else block_tokens
        """What a hash id stands for; ``None``: requests are known by their tokens."""
        self.has_times = reader.has_times(first.values)
        """Whether the requests have times."""
        self._context = TraceContext(text, vocab, self.block_tokens or 0, reader.unit, self.has_times)

    def __iter__(self) -> Iterator[TracedRequest]:
        """Every request, in order.

        Raises:
            UsageError: a line is broken, lacks a field, contradicts itself, or lies before the one ahead of it.
        """
        before = -math.inf
        for line in self._lines():
            for request in self.reader.requests(line, self._context):
                if request.time_s is not None:
                    if request.time_s < before:
                        raise line.fault(f"timestamp {line.values['timestamp']} lies before that of the line ahead; sort the file by time")
                    before = request.time_s
                yield request

    def _lines(self) -> Iterator[TraceLine]:
        """The objects of the file; blank lines hold none."""
        try:
            with self.path.open("rb") as file:
                for number, text in enumerate(file, start=1):
                    if text.strip():
                        yield TraceLine(self.path, number, _parse(self.path, number, text))
        except OSError as error:
            raise UsageError(f"--trace {self.path}: cannot be read ({error.strerror})") from None


def _parse(path: Path, number: int, text: bytes) -> dict[str, Any]:
    if number == 1 and text.startswith(GZIP):
        raise UsageError(f"--trace {path}: a gzip file; unpack it first (gunzip --keep)")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--trace {path}: line {number}: not JSON; a trace has one JSON object a line") from None
    if not isinstance(values, dict):
        raise UsageError(f"--trace {path}: line {number}: no object but {shown(values)}; a trace has one JSON object a line")
    return values
