"""The change of one figure between two runs, the interval it lies in, and the verdict.

The interval is Student's, over the logarithms of repeats (:mod:`kvbench.analysis.noise`). It is made for the compared figures together
(Bonferroni): of 100 comparisons without any true change, at most five call a regression. `benchmarks/compare_errors.py` measures it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy import stats

from kvbench.analysis.noise import Noise, Sides, mean
from kvbench.analysis.statistics import CONFIDENCE

_LOGS = (-36.0, 700.0)
"""Between these a share of change has a logarithm again: −100 % and infinity have none."""

RESOLVED = 0.25
"""A share of change that the interval must be able to show, else two figures cannot be called the same."""


class ChangeVerdict(StrEnum):
    """What can be said of a change, the gravest first.

    ``INCONCLUSIVE``: too few samples. ``MOVED``: it changed, and that is neither worse nor better, as tokens of another tier.
    """

    WORSE = "worse"
    UNKNOWN = "unknown"
    INCONCLUSIVE = "inconclusive"
    MOVED = "moved"
    BETTER = "better"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Change:
    """A change and the 95 % interval it lies in: a share of the base (0.1: 10 % more), or a difference. ``None``: cannot be told."""

    change: float | None = None
    low: float | None = None
    high: float | None = None


def interval(sides: Sides, noise: Noise | None, figures: float) -> Change:
    """The change as a difference of means over repeats, in the interval that ``figures`` compared at once hold together."""
    change = mean(sides.new) - mean(sides.base)
    if noise is None:
        return Change(change)
    error = math.sqrt(noise.of_mean(sides.base) + noise.of_mean(sides.new))
    half = float(stats.t.isf((1 - CONFIDENCE) / 2 / max(figures, 1), noise.freedom)) * error
    return Change(change, change - half, change + half)


def as_shares(change: Change) -> Change:
    """A change of logarithms as a share of the base."""
    return Change(
        *(None if value is None else math.expm1(min(max(value, _LOGS[0]), _LOGS[1])) for value in (change.change, change.low, change.high))
    )


def judge(change: Change, least: float, more_is_worse: bool | None, scale: float | None = None) -> ChangeVerdict:
    """The verdict on a change: worse or better if the whole interval lies beyond the least effect that counts.

    Args:
        least: that effect, as a share.
        more_is_worse: ``None``: no change is worse or better.
        scale: what a difference is a share of; ``None``: the change is a share itself. Shares are compared by their logarithms, so that
            5 % faster is the inverse of 5 % slower.
    """
    if change.low is None or change.high is None:
        return ChangeVerdict.INCONCLUSIVE
    low, high = (math.log1p(bound) if scale is None else bound / scale for bound in (change.low, change.high))
    beyond, resolved = (math.log1p(share) if scale is None else share for share in (least, max(RESOLVED, 2 * least)))
    if low > beyond or high < -beyond:
        return judge_exact(0, low, more_is_worse)
    return ChangeVerdict.SAME if (high - low) / 2 <= resolved else ChangeVerdict.INCONCLUSIVE


def judge_exact(base: float, new: float, more_is_worse: bool | None) -> ChangeVerdict:
    """The verdict on values without noise: any change counts."""
    if base == new:
        return ChangeVerdict.SAME
    return ChangeVerdict.MOVED if more_is_worse is None else ChangeVerdict.WORSE if (new > base) == more_is_worse else ChangeVerdict.BETTER
