"""Trace files: requests as they were once asked. Read line by line and checked; a fault is named with its line.

The first line tells which form it is (``formats/``), and whether there are times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from kvbench.errors import UsageError
from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.lines import lines_of
from kvbench.workloads.traces.reader import TraceContext, TracedRequest
from kvbench.workloads.traces.registry import TRACE_READERS, reader_of

MANY, FAST = 100, 500
"""So many requests at more than so many a second are no trace in milliseconds, unless the user says so."""


class TraceFile:
    """A trace on disk. Going through it reads it from the start; only one line is held."""

    def __init__(
        self, path: Path, text: PromptText, block_tokens: int | None = None, vocab: int | None = None, time_unit: str | None = None
    ) -> None:
        """Look at the first line.

        Args:
            text: turns text into token ids.
            block_tokens: what a hash id stands for; ``None``: what the form says.
            vocab: token ids are below this; ``None`` where no model says so.
            time_unit: of timestamps, ``s`` or ``ms``; ``None``: what the form says.

        Raises:
            UsageError: the file cannot be read, is empty, or has no form that is known.
        """
        self.path = path
        first = next(lines_of(path), None)
        if first is None:
            raise UsageError(f"--trace {path}: the file holds no request")
        reader = reader_of(first.values)
        if reader is None:
            forms = ", ".join(item.about for item in TRACE_READERS.all().values())
            raise first.fault(f"of no form that is known ({forms}); its keys: {', '.join(first.values) or 'none'}")
        if time_unit is not None and reader.unit is None:
            raise UsageError(f"--trace-time-unit {time_unit}: the times of {path} are dates; leave it out")
        own = reader.block_tokens(first.values)
        self.reader = reader
        self.block_tokens = None if own is None else block_tokens or own
        """What a hash id stands for; ``None``: requests are known by their tokens."""
        self.has_times = reader.has_times(first.values)
        """Whether the requests have times."""
        unit = time_unit or reader.unit or "s"
        self._context = TraceContext(text, vocab, self.block_tokens or 0, unit, time_unit is not None, first.number, self.has_times)

    def __iter__(self) -> Iterator[TracedRequest]:
        """Every request, in order.

        Raises:
            UsageError: a line is broken, lacks a field, contradicts itself, or lies before the one ahead of it.
        """
        before, context = -math.inf, replace(self._context, partial_blocks=set(), _unknown=count(-1, -1))
        for line in lines_of(self.path):
            for request in self.reader.requests(line, context):
                if request.time_s is not None:
                    if request.time_s < before:
                        said = line.values.get("timestamp", f"{request.time_s:g}")
                        raise line.fault(f"timestamp {said} lies before that of the line ahead; sort the file by time")
                    before = request.time_s
                yield request

    def check_pace(self, times_s: Sequence[float]) -> None:
        """Ask for the unit of times that only another unit makes likely.

        Raises:
            UsageError: it is to be said.
        """
        if self._context.unit != "ms" or self._context.unit_is_given or len(times_s) < MANY:
            return
        span = times_s[-1] - times_s[0]
        if len(times_s) > FAST * span:
            raise UsageError(
                f"--trace {self.path}: in milliseconds its {len(times_s):,} requests came within {span:g} s; --trace-time-unit s says that "
                "its times are seconds, ms that they are not"
            )
