"""The request lines of a run as a table, one row a request, and the prompt tokens of a pass, by the tier that gave them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvbench.analysis import load
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
FIELDS = (*_PLACE, *_TURNS, *_NUMBERS, *load.FIELDS, "error")
"""The fields of a request line that the table is made of."""


def request_frame(run: Run) -> pd.DataFrame:
    """The requests, with unknown numbers as NaN.

    Columns: the request's place, ``session`` and ``turn`` where the run has any, and ``failed``; ``ttft_ms``, ``restore_ms``,
    ``compute_ms``, ``preemptions``; the tokens ``prompt``, ``device``, ``host`` and ``computed``; and those of
    :func:`kvbench.analysis.load.load_columns`.
    """
    # Column by column: pandas takes several times as long to find the columns of a list of objects by itself.
    place = {name: [line[name] for line in run.requests] for name in _PLACE}
    numbers = {name: np.array([line.get(field) for line in run.requests], dtype=np.float64) for field, name in _NUMBERS.items()}
    place |= {name: [line.get(name) for line in run.requests] for name in _TURNS if any(name in line for line in run.requests)}
    failed = np.array([line["error"] is not None for line in run.requests], dtype=bool)
    return pd.DataFrame({**place, **numbers, **load.load_columns(run.requests), "failed": failed})


def pass_labels(lines: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """A label for each pass index, in order: the pass's name, and ``name#2`` for the second pass of that name."""
    names = dict(sorted({int(line["pass_index"]): str(line["pass"]) for line in lines}.items()))
    labels: dict[int, str] = {}
    seen: dict[str, int] = {}
    for index, name in names.items():
        seen[name] = seen.get(name, 0) + 1
        labels[index] = name if seen[name] == 1 else f"{name}#{seen[name]}"
    return labels


@dataclass(frozen=True, slots=True)
class PassTokens:
    """Prompt tokens of one pass by tier, ``None`` where unknown; where repeats differ (``same`` is false), their rounded mean."""

    prompt: int | None
    device: int | None
    host: int | None
    computed: int | None
    same: bool = True

    def hit_rate(self, tokens: int | None) -> float | None:
        """``tokens`` ÷ prompt tokens, 0 to 1; ``None`` where either is unknown or there is no prompt."""
        return None if tokens is None or not self.prompt else tokens / self.prompt


def tokens_of_pass(requests: pd.DataFrame, finished: set[int]) -> PassTokens:
    """PassTokens of one pass of one arm: what one repeat shows when all repeats agree, else their rounded mean.

    Args:
        requests: the pass's rows of :func:`request_frame`; failed ones are left out.
        finished: repeats that finished this pass. If there are any, a repeat that was cut short is left out too.
    """
    counted = ~requests["failed"].to_numpy()
    if finished:
        counted &= np.isin(requests["repeat"].to_numpy(), list(finished))
    if not counted.any():
        return PassTokens(None, None, None, None)
    names, place = np.unique(requests["repeat"].to_numpy()[counted], return_inverse=True)
    sums = np.zeros((len(names), 4))  # one request of unknown origin makes the sum of its repeat unknown, never smaller
    np.add.at(sums, place, requests[["prompt", "device", "host", "computed"]].to_numpy()[counted])
    prompt, device, host, computed = (None if np.isnan(total) else round(float(total)) for total in sums.mean(axis=0))
    return PassTokens(prompt, device, host, computed, same=bool(((sums == sums[0]) | (np.isnan(sums) & np.isnan(sums[0]))).all()))


def counted_in_pass(lines: Sequence[Mapping[str, Any]]) -> PassTokens:
    """PassTokens of one pass of one arm where only the pass as a whole was counted: from its lines, one a repeat."""
    columns = ["cached_tokens_device", "cached_tokens_host", "computed_tokens"]
    counts = pd.DataFrame([{name: line.get(name) for name in columns} for line in lines], columns=columns, dtype="float64")
    if counts.empty or counts.isna().any(axis=None):
        return PassTokens(None, None, None, None)
    device, host, computed = (round(float(counts[name].mean())) for name in columns)
    return PassTokens(device + host + computed, device, host, computed, same=bool((counts.nunique() == 1).all()))
