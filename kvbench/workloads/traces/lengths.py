"""Traces that say times and lengths, and not which prompts begin alike: every prompt is made of tokens that no other one has."""

from __future__ import annotations

from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import TraceContext, TracedRequest

BLOCK = 512
"""What an id of such a prompt stands for."""


def of_lengths(line: TraceLine, context: TraceContext, time_s: float | None, prompt: str, output: str) -> TracedRequest:
    """The request of a row of CSV, by the names of its columns of tokens, whole numbers above 0."""
    counts = []
    for name in (prompt, output):
        word = line.values.get(name)
        if not (isinstance(word, str) and word.isascii() and word.isdecimal() and 0 < int(word[:20]) <= 10**9):
            raise line.fault(f"{name} is a whole number of tokens above 0, not {shown(word)}; leave out requests that failed")
        counts.append(int(word))
    return TracedRequest(line.number, time_s, counts[0], counts[1], context.unknown(-(-counts[0] // context.block_tokens)))
