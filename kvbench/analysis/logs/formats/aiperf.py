"""AIPerf's ``profile_export.jsonl``: an object a request (ai-dynamo/aiperf at db4f639, docs/tutorials/working-with-profile-exports.md).

Every metric has its unit beside its value. Requests of other phases than ``profiling`` (a warm-up) are left out. A server that says how
much of a prompt it found is in ``usage_prompt_cache_read_tokens``, of ``usage_prompt_tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.analysis.logs.reader import TTFT_UNITS, LogReader, Object, at, flat, tokens

_UNITS = {unit: unit for unit in TTFT_UNITS} | {"sec": "s", "seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_PROFILING = ("profiling", None)


def _rows(records: Sequence[Object]) -> Iterator[dict[str, Any]]:
    for record in records:
        if at(record, "metadata.benchmark_phase") not in _PROFILING:
            continue
        said = at(record, "metrics.time_to_first_token.unit") or "ms"
        unit = _UNITS.get(str(said))
        if unit is None:
            raise ValueError(f"time_to_first_token is in {said!r}, which is no unit that is known ({', '.join(_UNITS)})")
        cached = at(record, "metrics.usage_prompt_cache_read_tokens.value")
        prompt = at(record, f"metrics.{'input_sequence_length' if cached is None else 'usage_prompt_tokens'}.value")
        yield {
            **flat(record),
            f"ttft_{unit}": at(record, "metrics.time_to_first_token.value"),
            "error": _error(record),
            **tokens(prompt, cached),
        }


def _error(record: Object) -> str | None:
    error = record.get("error")
    if error:
        return str(at(error, "message") or at(error, "type") or error)
    return "was cancelled" if at(record, "metadata.was_cancelled") else None


READER = LogReader("aiperf", "aiperf's profile_export.jsonl", lambda first: {"metadata", "metrics"} <= first.keys(), _rows)
