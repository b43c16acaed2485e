"""Speedup over the baseline arm, its interval, and the cost of the first read beside the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvbench.analysis.known_noise import KnownNoise
from kvbench.analysis.latency import timed
from kvbench.analysis.statistics import Interval, between_pairs, between_repeats

MOST_PAIRS = 2000
"""Pairs above which their own sampling is lost beside the spread of repeats, and resampling them takes long."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """Baseline statistic ÷ arm statistic of a pass: above 1 is faster. Intervals are 95 % and need repeats. ``None``: no data."""

    p50: float | None = None
    mean: float | None = None
    p50_interval: Interval | None = None
    mean_interval: Interval | None = None


def speedup(baseline: pd.DataFrame, arm: pd.DataFrame) -> Speedup:
    """The speedup of one pass, from its rows on the baseline and on the arm (which may be the baseline itself)."""
    base, own = timed(baseline), timed(arm)
    if base.empty or own.empty:
        return Speedup()
    pairs = base.merge(own, on=["repeat", "position", "doc_id"], suffixes=("_base", "_own"))
    return Speedup(
        p50=_ratio(base["ttft_ms"].median(), own["ttft_ms"].median()),
        mean=_ratio(base["ttft_ms"].mean(), own["ttft_ms"].mean()),
        p50_interval=_interval(np.median, pairs),
        mean_interval=_interval(np.mean, pairs),
    )


def _ratio(baseline: float, own: float) -> float | None:
    return float(baseline / own) if own > 0 else None


def _interval(statistic: Any, pairs: pd.DataFrame) -> Interval | None:
    """95 % interval of the ratio of a statistic: the wider end on each side of what pairs and what repeats say; ``None``: one repeat,
    or times of 0, as a log may have, over which there is no ratio.

    Pairs alone say too little: requests of a repeat share their minute on the machine. Repeats alone may agree by luck when they are two.
    """
    by_repeat = [
        (rows["ttft_ms_base"].to_numpy(np.float64), rows["ttft_ms_own"].to_numpy(np.float64)) for _, rows in pairs.groupby("repeat")
    ]
    if len(by_repeat) < 2:
        return None
    of_repeats = [(float(statistic(base)), float(statistic(own))) for base, own in by_repeat]
    if min(map(min, of_repeats)) <= 0:
        return None
    low, high = between_repeats([base / own for base, own in of_repeats])
    if len(pairs) <= MOST_PAIRS:
        of_pairs = between_pairs(statistic, pairs["ttft_ms_base"].to_numpy(np.float64), pairs["ttft_ms_own"].to_numpy(np.float64))
        if not np.isfinite(of_pairs).all():
            return None
        low, high = min(low, of_pairs[0]), max(high, of_pairs[1])
    return low, high


@dataclass(frozen=True, slots=True)
class FirstRead:
    """What the first read costs on an arm: its p50 in pass 0 ÷ the baseline's, − 1. ``noise``: the largest of the run, and its kind."""

    arm: str
    cost: float
    noise: float | None
    noise_of: str | None


def first_read(frame: pd.DataFrame, baseline: str, arm: str, noise: KnownNoise | None) -> FirstRead | None:
    """The first-read cost of an arm; ``None`` where either arm has no timed request in pass 0."""
    first = timed(frame)
    first = first[first["pass_index"] == 0]
    base, own = (first[first["arm"] == name]["ttft_ms"].median() for name in (baseline, arm))
    if not base > 0 or not own > 0:
        return None
    return FirstRead(arm, float(own / base - 1), None if noise is None else noise.share, None if noise is None else noise.of)
