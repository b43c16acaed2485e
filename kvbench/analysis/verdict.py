"""The change of one figure between two runs, the interval it lies in, and the verdict.

The samples are repeats, not requests: requests of one repeat share the machine's mood of that minute, so a thousand of them say no more
about another run than one repeat does. The interval is Student's, over the repeats' logarithms. With three repeats a figure's own spread
is mostly luck, so its variance is drawn half-way to that of the same figure in the other passes (shrinkage, as Smyth 2004 does for
thousands of figures). It is made for all compared figures together (Bonferroni): in 95 of 100 comparisons without any true change, every
one of them holds. `benchmarks/compare_errors.py` measures both.

Whole runs differ by more than the repeats within one show. Where a side has several runs, the variance between them is measured too, and
the degrees of freedom are those of runs.
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
"""Repeats of both runs together, less two, below which there is no interval: with 1 and 2 the spread rests on one difference. The same for
runs, where a side has several."""

ByRun = Sequence[Sequence[float]]
"""A figure in each repeat of each run of one side."""

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
    """The variance of a figure between repeats of one run, and between runs beside that; the degrees of freedom they rest on."""

    within: float
    between: float
    freedom: int

    def of_mean(self, side: ByRun) -> float:
        """The variance of the mean over all repeats of a side."""
        sizes = np.array([len(run) for run in side], dtype=np.float64)
        return float(self.between * (sizes**2).sum() / sizes.sum() ** 2 + self.within / sizes.sum())


def own_noise(base: ByRun, new: ByRun) -> Noise | None:
    """The noise of a figure on both sides; ``None``: too few repeats, or too few runs where there are several."""
    sides = [[run for run in side if len(run)] for side in (base, new)]
    runs = [run for side in sides for run in side]
    if not all(sides):
        return None
    repeats = sum(len(run) for run in runs)
    within = sum(float(np.var(run)) * len(run) for run in runs) / max(repeats - len(runs), 1)
    if len(runs) == 2:
        return Noise(within, 0.0, repeats - 2) if repeats - 2 >= LEAST_FREEDOM else None
    freedom = len(runs) - 2
    if freedom < LEAST_FREEDOM:
        return None
    of_means = sum(float(np.var([np.mean(run) for run in side])) * len(side) for side in sides) / freedom
    return Noise(within, max(0.0, of_means - within * float(np.mean([1 / len(run) for run in runs]))), freedom)


def shared_noise(own: Noise, others: Sequence[Noise], weight: int) -> Noise:
    """Half-way between a figure's own noise and the mean of ``others`` (its own among them); it rests on ``weight`` times as much."""
    within, between = (float(np.mean([getattr(noise, name) for noise in others])) for name in ("within", "between"))
    return Noise((own.within + within) / 2, (own.between + between) / 2, own.freedom * weight)


def interval(base: ByRun, new: ByRun, noise: Noise | None, figures: float) -> Change:
    """The change as a difference of means over repeats, in the interval that ``figures`` compared at once hold together."""
    change = mean(new) - mean(base)
    if noise is None:
        return Change(change)
    error = math.sqrt(noise.of_mean(base) + noise.of_mean(new))
    half = float(stats.t.isf((1 - CONFIDENCE) / 2 / max(figures, 1), noise.freedom)) * error
    return Change(change, change - half, change + half)


def mean(side: ByRun) -> float:
    """The mean over all repeats of all runs."""
    return float(np.mean(flat(side)))


def flat(side: ByRun) -> list[float]:
    """The repeats of all runs of a side."""
    return [value for run in side for value in run]


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
