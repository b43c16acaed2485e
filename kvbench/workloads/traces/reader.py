"""What a reader of traces is: one form of file as requests. A new one is a file in ``formats/``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from kvbench.workloads.prompt_text import PromptText
from kvbench.workloads.traces.line import TraceLine, shown

MOST_ID = 2**62
MILLISECONDS = 10**11
"""A time in seconds that is larger lies beyond the year 5000, so it is not in seconds."""

UNITS = {"s": ("seconds", 1.0), "ms": ("milliseconds", 1000.0)}
"""Units of a trace's times: their name, and how many a second has."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request. ``ids`` are hash ids of blocks, or token ids (:attr:`TraceFile.block_tokens`). ``None``: the trace does not say.

    ``time_s`` is in seconds on the trace's own clock. A hash id below 0 stands for tokens that the trace does not name: no other request
    has it. ``turn`` above 0: it is asked when the request ahead of it has been answered.
    """

    line: int
    time_s: float | None
    prompt_tokens: int
    output_tokens: int | None
    ids: Sequence[int]
    turn: int = 0


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What a reader is told beside the line.

    ``text`` turns text into token ids. ``vocab``: token ids are below it; ``None`` where no model says so. ``block_tokens``: what a hash
    id stands for, 0 where ids are tokens. ``unit``: of times, a key of ``UNITS``; ``unit_is_given``: by the user, and not by the form.
    ``first_line``: its number; ``has_times``: whether it has a time.
    """

    text: PromptText
    vocab: int | None
    block_tokens: int
    unit: str
    unit_is_given: bool
    first_line: int
    has_times: bool
    partial_blocks: set[bool] = field(default_factory=set)
    """Whether the lines so far have an id for a block that is not full."""
    _unknown: Iterator[int] = field(default_factory=lambda: count(-1, -1))

    def unknown(self, blocks: int) -> list[int]:
        """Ids for so many blocks that the trace does not name, never the same again."""
        return list(islice(self._unknown, blocks))

    def seconds(self, line: TraceLine, value: object) -> float | None:
        """A line's time in seconds; ``None``: the trace has none."""
        if not self.has_times:
            if value is not None:
                raise line.fault("a timestamp, and the lines ahead have none; give all or none")
            return None
        name, factor = UNITS[self.unit]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise line.fault(f"timestamp is a number of {name} from 0, not {shown(value)}")
        if self.unit == "ms" and not self.unit_is_given and value != math.floor(value):
            raise line.fault(f"timestamp {shown(value)} has a fraction; --trace-time-unit s says that it is seconds, ms milliseconds")
        if value > MILLISECONDS * factor:
            raise line.fault(f"timestamp {shown(value)} is not in {name}, or beyond the year 5000; --trace-time-unit says its unit")
        return value / factor


@dataclass(frozen=True, slots=True)
class TraceReader:
    """One form of trace.

    ``about``: whose form it is, as messages and help name it. ``fits``: whether the first line is of this form; no two fit one.
    ``requests``: those of one line. ``block_tokens``: what a hash id stands for in a trace with this first line, unless the user says;
    ``None``: ids are tokens. ``unit``: of its times; ``None``: they are dates, which have none. ``has_times``: whether a trace with this
    first line has times. ``says_prefixes``: whether it says which prompts begin alike. ``is_csv``: its lines are rows, the first one names.
    """

    name: str
    about: str
    fits: Callable[[Mapping[str, Any]], bool]
    requests: Callable[[TraceLine, TraceContext], Iterator[TracedRequest]]
    block_tokens: Callable[[Mapping[str, Any]], int | None]
    unit: str | None
    has_times: Callable[[Mapping[str, Any]], bool] = lambda first: "timestamp" in first
    says_prefixes: bool = True
    is_csv: bool = False
