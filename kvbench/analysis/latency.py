"""Latency: what a set of TTFT values says, and how long a pass took. Failed requests are never in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from kvbench.runs.run_folder import Run

P90_NEEDS = 64
P99_NEEDS = 662
"""Samples below which a tail percentile is withheld: the counts of mlcommons/endpoints, for 99 % confidence."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of ``n`` values, in their unit. ``None``: no value, or too few (``std`` needs 2, ``p90`` 64, ``p99`` 662)."""

    n: int
    p50: float | None = None
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    p90: float | None = None
    p99: float | None = None


def statistics(values: Sequence[float] | pd.Series[float]) -> Statistics:
    """Statistics of values without NaN: percentiles interpolate linearly, ``std`` is the sample's (n − 1)."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return Statistics(n=0)
    return Statistics(
        n=int(data.size),
        p50=float(np.median(data)),
        mean=float(data.mean()),
        std=float(data.std(ddof=1)) if data.size > 1 else None,
        min=float(data.min()),
        max=float(data.max()),
        p90=float(np.percentile(data, 90)) if data.size >= P90_NEEDS else None,
        p99=float(np.percentile(data, 99)) if data.size >= P99_NEEDS else None,
    )


def known_median(values: pd.Series[float]) -> float | None:
    """The median, ``None`` if any value is unknown or there is none."""
    return None if values.empty or values.isna().any() else float(values.median())


def timed(frame: pd.DataFrame) -> pd.DataFrame:
    """The requests that have a latency: not failed, and with a first token."""
    return frame[~frame["failed"] & frame["ttft_ms"].notna()]


def pass_seconds(run: Run) -> dict[tuple[str, int], float]:
    """Pass time by arm and pass index: first send to last token, in seconds; the median over repeats."""
    walls: dict[tuple[str, int], list[float]] = {}
    for line in run.passes:
        if line["wall_s"] is not None:
            walls.setdefault((line["arm"], line["pass_index"]), []).append(line["wall_s"])
    return {key: median(values) for key, values in walls.items()}
