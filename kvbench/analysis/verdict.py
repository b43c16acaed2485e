"""The change of one figure between two runs, the interval it lies in, and the verdict.

The samples are repeats, not requests: requests of one repeat share the machine's mood of that minute, so a thousand of them say no more
about another run than one repeat does. The interval is Student's, over the repeats' logarithms. With three repeats a figure's own spread
is mostly luck, so its variance is drawn half-way to that of the same figure in the other passes (shrinkage, as Smyth 2004 does for
thousands of figures). It is made for all compared figures together (Bonferroni): in 95 of 100 comparisons without any true change, every
one of them holds. `benchmarks/compare_errors.py` measures both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
_LARGEST_LOG = 700.0
LEAST_FREEDOM = 2
"""Repeats of both runs together, less two, below which there is no interval: with 1 and 2 the spread rests on one difference."""

RESOLVED = 0.25
"""A share of change that the interval must be able to show, else there are too few samples to call two figures the same."""


class Verdict(StrEnum):
    """What can be said of a change, the gravest first. ``MOVED``: tokens came from another tier, and no more of them were computed."""

    WORSE = "worse"
    UNKNOWN = "unknown"
    TOO_FEW = "too few samples"
    MOVED = "moved"
    BETTER = "better"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Change:
    """A change and the 95 % interval it lies in: a share of the base (0.1: 10 % more), or a difference. ``None``: cannot be told."""

    change: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """The variance of a figure between repeats of one run, and the degrees of freedom it rests on."""

    variance: float
    freedom: int


def own_noise(base: Sequence[float], new: Sequence[float]) -> Noise | None:
    """The noise of a figure within both runs; ``None``: too few repeats."""
    freedom = len(base) + len(new) - 2
    if freedom < LEAST_FREEDOM or not base or not new:
        return None
    return Noise(float(np.var(base) * len(base) + np.var(new) * len(new)) / freedom, freedom)


def shared_noise(own: Noise, others: Sequence[Noise], arms: int) -> Noise:
    """Half-way between a figure's own noise and the mean of all passes' (``others``, its own among them).

    It rests on as many repeats as there are arms more: passes of one arm and repeat follow each other, so they are no samples of their own.
    """
    return Noise((own.variance + float(np.mean([noise.variance for noise in others]))) / 2, own.freedom * max(arms, 1))


def interval(base: Sequence[float], new: Sequence[float], noise: Noise | None, figures: int) -> Change:
    """The change as a difference of means, in the interval that all ``figures`` compared at once hold together."""
    change = float(np.mean(new) - np.mean(base))
    if noise is None:
        return Change(change)
    error = math.sqrt(noise.variance * (1 / len(base) + 1 / len(new)))
    half = float(stats.t.isf((1 - CONFIDENCE) / 2 / max(figures, 1), noise.freedom)) * error
    return Change(change, change - half, change + half)


def as_shares(change: Change) -> Change:
    """A change of logarithms as a share of the base."""
    return Change(*(None if value is None else math.expm1(min(value, _LARGEST_LOG)) for value in (change.change, change.low, change.high)))


def judge(change: Change, least: float, more_is_worse: bool, scale: float | None = None) -> Verdict:
    """The verdict on a change: worse or better if the whole interval lies beyond the least effect that counts.

    Args:
        least: that effect, as a share.
        scale: what a difference is a share of; ``None``: the change is a share itself. Shares are compared by their logarithms, so that
            5 % faster is the inverse of 5 % slower.
    """
    if change.low is None or change.high is None:
        return Verdict.TOO_FEW
    low, high = (math.log1p(bound) if scale is None else bound / scale for bound in (change.low, change.high))
    beyond, resolved = (math.log1p(share) if scale is None else share for share in (least, max(RESOLVED, 2 * least)))
    if low > beyond or high < -beyond:
        return Verdict.WORSE if (low > beyond) == more_is_worse else Verdict.BETTER
    return Verdict.SAME if (high - low) / 2 <= resolved else Verdict.TOO_FEW


def spread(base: Sequence[float], new: Sequence[float]) -> float | None:
    """The measured noise: by how much a figure's repeats differ, (max − min) ÷ median, in the run where that is more."""
    spreads = [float((max(side) - min(side)) / np.median(side)) for side in (base, new) if len(side) > 1 and np.median(side) > 0]
    return max(spreads, default=None)
