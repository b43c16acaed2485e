"""Statistics: what a set of values says, the geometric mean of ratios, and the intervals that ratios lie in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

CONFIDENCE = 0.95
"""Of every interval."""

RESAMPLES = 4000
"""Of a bootstrap, with a fixed seed."""

Interval = tuple[float, float]
"""The low and the high end."""

_Array = npt.NDArray[np.float64]


def samples_needed(percentile: float) -> int:
    """Samples below which a percentile is withheld: with 99 % confidence at least two of them lie beyond it.

    For the 90th and the 99th these are the counts of mlcommons/endpoints, 64 and 662.
    """
    beyond, count = 1 - percentile / 100, 1
    while (1 - beyond) ** count + count * beyond * (1 - beyond) ** (count - 1) > 0.01:
        count += 1
    return count


P90_NEEDS, P99_NEEDS = samples_needed(90), samples_needed(99)


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


def statistics(values: Sequence[float] | pd.Series[float] | _Array) -> Statistics:
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


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; the value itself where there is one or all are equal; 0 if any is."""
    if min(values) == max(values) or min(values) <= 0:
        return min(values)
    return math.exp(float(np.mean(np.log(values))))


def between_repeats(ratios: Sequence[float]) -> Interval:
    """Student's 95 % interval of a ratio, from the logarithms of two repeats' ratios or more."""
    from scipy.stats import t  # late: scipy takes longer to import than all else

    logs = np.log(ratios)
    half = float(t.isf((1 - CONFIDENCE) / 2, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))


def between_pairs(statistic: Any, baseline: _Array, own: _Array) -> Interval:
    """95 % bootstrap interval of the ratio of a statistic, resampling pairs of the same document and repeat.

    Percentile, not BCa: BCa divides by the spread of the jackknife, which is zero for a median of equal values.
    """
    from scipy.stats import bootstrap  # late, as above

    def ratio(first: _Array, second: _Array, axis: int) -> _Array:
        return np.asarray(statistic(first, axis=axis) / statistic(second, axis=axis))

    with np.errstate(divide="ignore", invalid="ignore"):  # where a resample's own times are 0
        result = bootstrap(
            (baseline, own),
            ratio,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def known_median(values: pd.Series[float]) -> float | None:
    """The median, ``None`` if any value is unknown or there is none."""
    return None if values.empty or values.isna().any() else float(values.median())
