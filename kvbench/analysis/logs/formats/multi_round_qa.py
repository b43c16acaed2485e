"""LMBenchmark's and production-stack's multi-round QA: CSV of ``multi-round-qa.py``, and JSON of the real one (LMCache/LMBenchmark at
30a006b, real-multi-round-qa/multi-round-qa.py).

``ttft`` is a difference of ``time.time()``: seconds, which neither file says. The real one writes 0.0 where no token came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.analysis.logs.reader import LogReader, Object, at, objects_at, with_repeats

_CSV = {"ttft", "generation_time", "user_id", "question_id", "launch_time", "finish_time"}


def _fits(first: Object) -> bool:
    turn = next(iter(first.get("results") or ()), None) if isinstance(first.get("results"), list) else None
    return first.keys() >= _CSV or (turn is not None and at(turn, "session_id") is not None and at(turn, "ttft") is not None)


def _load(file: Object) -> dict[str, Any]:
    return {name: at(file, f"params.{name}") for name in ("model", "concurrent", "session_depth") if at(file, f"params.{name}") is not None}


def _rows(objects: Sequence[Object]) -> Iterator[dict[str, Any]]:
    if "results" not in objects[0]:
        yield from map(_row, objects)
        return
    for file, load in with_repeats(objects, _load):
        yield from ({**_row(turn), **load} for turn in objects_at(file, "results"))


def _row(request: Object) -> dict[str, Any]:
    status = request.get("status", "success")
    others = {name: value for name, value in request.items() if name != "ttft"}
    return {**others, "ttft_s": request.get("ttft"), "error": None if status == "success" else str(status)}


READER = LogReader("multi-round-qa", "LMBenchmark's multi-round QA", _fits, _rows)
