"""Noise: how much a figure differs where nothing changed, between runs and between repeats; :mod:`kvbench.analysis.run_noise` has that
within one run.

Of :class:`Noise`: the samples are repeats, not requests: requests of one repeat share the machine's mood of that minute, so a thousand of
them say no more about another run than one repeat does. With three repeats a figure's own spread is mostly luck, so its variance is drawn
half-way to that of the same figure in the other passes (shrinkage, as Smyth 2004 does for thousands of figures).

Whole runs differ by more than the repeats within one show. Where a side has several runs, the variance between them is measured, and the
degrees of freedom are those of runs. Where each side is one run, it is read off the changes: a run that was slow was not so by the same
share in all passes of all arms (what is served from a tier differs more than what is computed), so its changes lie far apart. What all of
them share is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis.latency import timed

LEAST_FREEDOM = 2
"""Repeats of both runs together, less two, below which there is no interval: with 1 and 2 the spread rests on one difference. The same for
runs, where a side has several."""

MOST_BETWEEN = 0.1**2
"""The variance between runs (of logarithms) that two single runs are held to have at most: about the most that five real runs had in one
pass (reports/compare-2026-11-30.jsonl). Without it a change in one of two passes would hide itself, however large."""

ByRun = Sequence[Sequence[float]]
"""A figure in each repeat of each run of one side."""


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


NONE = Noise(0.0, 0.0, LEAST_FREEDOM)


@dataclass(frozen=True, slots=True)
class Sides:
    """One figure of one pass of an arm on both sides, as an interval is made of it: logarithms where its change is a share."""

    arm: str
    base: ByRun
    new: ByRun


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


def shared_noise(passes: Sequence[Sides], several: bool) -> list[Noise | None]:
    """The noise of one figure in each of its passes, half of it that of the same figure in other passes.

    Args:
        several: a side has several runs.
    """
    owns = [own_noise(sides.base, sides.new) for sides in passes]
    known = [(sides, noise) for sides, noise in zip(passes, owns, strict=True) if noise is not None]
    found = iter((_of_several_runs if several else _of_two_runs)(known))
    return [None if own is None else next(found) for own in owns]


Known = Sequence[tuple[Sides, Noise]]
"""One figure in the passes that have a noise of their own."""


def _of_several_runs(known: Known) -> Iterator[Noise]:
    """Drawn to the passes of the same arm, as what is served from a tier differs far more from run to run than what is computed; with these
    it rests on twice as many runs."""
    for sides, own in known:
        of_arm = [noise for other, noise in known if other.arm == sides.arm]
        yield _half_way(own, of_arm, min(len(of_arm), 2))


def _of_two_runs(known: Known) -> Iterator[Noise]:
    """Drawn to all passes; it rests on as many repeats as there are arms more: passes of one arm and repeat follow each other, so they are
    no samples of their own."""
    arms = len({sides.arm for sides, _ in known})
    within = [(sides, _half_way(own, [noise for _, noise in known], arms)) for sides, own in known]
    between = _between_two_runs(within)
    return (replace(noise, between=between[sides.arm]) for sides, noise in within)


def _between_two_runs(known: Known) -> dict[str, float]:
    """The variance between two runs, by arm: how far the changes lie apart beyond what repeats explain.

    Over the passes of the arm or of all, where that is less, so that a change of an arm as a whole does not hide itself, nor does one of a
    few passes; at most :data:`MOST_BETWEEN`.
    """
    of_all = _apart(known, _robust_variance)
    arms = {sides.arm for sides, _ in known}
    of_arm = {arm: _apart([one for one in known if one[0].arm == arm], _variance) for arm in arms}
    return {arm: min(of_all / 2, of_arm[arm] / 2, MOST_BETWEEN) for arm in arms}


def _apart(known: Known, variance: Callable[[Sequence[float]], float]) -> float:
    """The variance of the changes of a figure from pass to pass, less that which their noise explains."""
    changes = [mean(sides.new) - mean(sides.base) for sides, _ in known]
    explained = [noise.of_mean(sides.base) + noise.of_mean(sides.new) for sides, noise in known]
    return max(0.0, variance(changes) - float(np.mean(explained))) if changes else 0.0


def _variance(values: Sequence[float]) -> float:
    """The variance; of a single value, which says nothing of it, no limit."""
    return float(np.var(values, ddof=1)) if len(values) > 1 else math.inf


def _robust_variance(values: Sequence[float]) -> float:
    """The variance by the median absolute deviation, in small samples as Croux and Rousseeuw 1992 correct it."""
    from scipy import stats  # late: scipy takes longer to import than all else

    return float(stats.median_abs_deviation(values, scale="normal") * len(values) / (len(values) - 0.8)) ** 2


def _half_way(own: Noise, others: Sequence[Noise], weight: int) -> Noise:
    """Half-way between a figure's own noise and the mean of ``others`` (its own among them); it rests on ``weight`` times as much."""
    within, between = (float(np.mean([getattr(noise, name) for noise in others])) for name in ("within", "between"))
    return Noise((own.within + within) / 2, (own.between + between) / 2, own.freedom * weight)


def mean(side: ByRun) -> float:
    """The mean over all repeats of all runs."""
    return float(np.mean(flat(side)))


def flat(side: ByRun) -> list[float]:
    """The repeats of all runs of a side."""
    return [value for run in side for value in run]


def most_spread(base: Sequence[float], new: Sequence[float]) -> float | None:
    """Of a compared figure, the larger :func:`spread` of both runs' repeats; ``None``: neither has two."""
    return max((found for side in (base, new) if (found := spread(side)) is not None), default=None)


def spread(values: Sequence[float] | npt.NDArray[np.float64]) -> float | None:
    """(max − min) ÷ median, a share; ``None``: fewer than two values, or a median of 0."""
    middle = float(np.median(values)) if len(values) > 1 else 0.0
    return float((max(values) - min(values)) / middle) if middle > 0 else None


def of_pass(requests: pd.DataFrame) -> float | None:
    """How much a pass of an arm differs from itself: the spread of its repeats' p50; ``None``: one repeat."""
    return spread(timed(requests).groupby("repeat")["ttft_ms"].median().to_numpy(np.float64))


def of_difference(columns: npt.NDArray[np.float64]) -> float | None:
    """Two standard errors of the mean difference of two columns, a row a repeat; ``None``: one repeat."""
    return None if len(columns) < 2 else float(2 * np.sqrt(columns.var(axis=0, ddof=1).sum() / len(columns)))
