"""genai-bench's file a scenario and concurrency: ``individual_request_metrics`` (sgl-project/genai-bench at 7fd04d8,
genai_bench/metrics/metrics.py and aggregated_metrics_collector.py).

``ttft`` is in what ``_time_unit`` says, ``s`` or ``ms``; files without it are in seconds. ``error_code`` is null where a request succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.analysis.logs.reader import TTFT_UNITS, LogReader, Object, at, objects_at, with_repeats

_LOAD = ("scenario", "num_concurrency", "batch_size", "iteration_type")


def _load(file: Object) -> dict[str, Any]:
    return {name: at(file, f"aggregated_metrics.{name}") for name in _LOAD if at(file, f"aggregated_metrics.{name}") is not None}


def _rows(files: Sequence[Object]) -> Iterator[dict[str, Any]]:
    for file, load in with_repeats(files, _load):
        unit = str(file.get("_time_unit", "s"))
        if unit not in TTFT_UNITS:
            raise ValueError(f"_time_unit is {unit!r}, which is neither s nor ms")
        for request in objects_at(file, "individual_request_metrics"):
            code, message = request.get("error_code"), request.get("error_message")
            said = [str(part) for part in (code, message) if part not in (None, "")]
            others = {name: value for name, value in request.items() if name not in ("ttft", "error_code", "error_message")}
            row = {f"ttft_{unit}": request.get("ttft"), "error": ": ".join(said) or None, "prompt_tokens": request.get("num_input_tokens")}
            yield {**others, **load, **row}


READER = LogReader("genai-bench", "genai-bench's file of a run", lambda first: "individual_request_metrics" in first, _rows)
