"""The request lines of a run as a table, one row a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from kvbench.runs.run_folder import Run

_PLACE = ["arm", "repeat", "pass", "pass_index", "position", "doc_id"]
_NUMBERS = {
    "ttft_ms": "ttft_ms",
    "prompt_tokens": "prompt",
    "cached_tokens_device": "device",
    "cached_tokens_host": "host",
    "computed_tokens": "computed",
    "restore_ms": "restore_ms",
    "compute_ms": "compute_ms",
    "preemptions": "preemptions",
}
_TURNS = ["session", "turn"]
FIELDS = (*_PLACE, *_TURNS, *_NUMBERS, "error")
"""The fields of a request line that the table is made of."""


def request_frame(run: Run) -> pd.DataFrame:
    """The requests, with unknown numbers as NaN.

    Columns: the request's place, ``session`` and ``turn`` where the run has any, and ``failed``; ``ttft_ms``, ``restore_ms``,
    ``compute_ms``, ``preemptions``; the tokens ``prompt``, ``device``, ``host`` and ``computed``.
    """
    # Column by column: pandas takes several times as long to find the columns of a list of objects by itself.
    place = {name: [line[name] for line in run.requests] for name in _PLACE}
    numbers = {name: np.array([line.get(field) for line in run.requests], dtype=np.float64) for field, name in _NUMBERS.items()}
    place |= {name: [line.get(name) for line in run.requests] for name in _TURNS if any(name in line for line in run.requests)}
    return pd.DataFrame({**place, **numbers, "failed": np.array([line["error"] is not None for line in run.requests], dtype=bool)})


def pass_labels(lines: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """A label for each pass index, in order: the pass's name, and ``name#2`` for the second pass of that name."""
    names = dict(sorted({int(line["pass_index"]): str(line["pass"]) for line in lines}.items()))
    labels: dict[int, str] = {}
    seen: dict[str, int] = {}
    for index, name in names.items():
        seen[name] = seen.get(name, 0) + 1
        labels[index] = name if seen[name] == 1 else f"{name}#{seen[name]}"
    return labels
