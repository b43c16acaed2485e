"""Coding-agent sessions in Weka's form (callanjfox/agentic-coding-analysis, docs/TRACE_FORMAT.md): an object a session.

Of its ``requests`` ``t`` is in seconds from the session's start, ``in`` and ``out`` are tokens, and ``hash_ids`` are of full blocks of
``block_size`` only, equal within a session only. Those of a sub-agent count from its own ``t``. All are asked at their times here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.workloads.traces.formats.mooncake import hashed
from kvbench.workloads.traces.line import TraceLine, shown
from kvbench.workloads.traces.reader import MILLISECONDS, TraceContext, TracedRequest, TraceReader

_NAMES = {"input_length": "in", "output_length": "out", "hash_ids": "hash_ids"}


def _requests(line: TraceLine, context: TraceContext) -> Iterator[TracedRequest]:
    if line.number != context.first_line:
        raise line.fault("a second session; ids mean the same within one only, so that a trace is a file with one")
    try:
        found = sorted(_flat(line, line.values.get("requests"), 0.0), key=lambda request: request[0])
    except RecursionError:
        raise line.fault("its requests are nested too deeply") from None
    for time, request in found:
        values = {"timestamp": time} | {name: request.get(own) for name, own in _NAMES.items()}
        yield from hashed(TraceLine(line.file, line.number, values), context)


def _flat(line: TraceLine, requests: Any, start: float) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """Every request with its time, those of sub-agents too."""
    if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
        raise line.fault(f"requests is a list of objects, not {shown(requests)}")
    for request in requests:
        time = request.get("t")
        if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < MILLISECONDS:
            raise line.fault(f"t of a request is a number of seconds, not {shown(time)}")
        if "requests" in request:
            yield from _flat(line, request["requests"], start + time)
        else:
            yield start + time, request


def _block_tokens(first: Mapping[str, Any]) -> int | None:
    size = first["block_size"]
    return size if isinstance(size, int) and 1 <= size <= 65536 else 64


READER = TraceReader(
    "weka", "Weka's", lambda first: {"requests", "block_size"} <= first.keys(), _requests, _block_tokens, "s", lambda first: True
)
