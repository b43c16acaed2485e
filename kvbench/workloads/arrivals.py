"""Arrivals: when the requests of an open loop are due, in seconds from the start of a pass; the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from kvbench.workloads.draws import Draws

NAMES = ("constant", "poisson")


def constant_rate(count: int, rate: float) -> list[float]:
    """``count`` requests, ``rate`` a second, evenly apart, the first at once."""
    _check(rate, "rate")
    return [place / rate for place in range(count)]


def poisson(count: int, rate: float, draws: Draws) -> list[float]:
    """``count`` requests whose gaps are exponential with mean 1 ÷ ``rate`` seconds, the first at once.

    Requests of users who know nothing of each other arrive so: now and then several at once. Whole nanoseconds, because the last bits of
    a logarithm differ between machines.
    """
    _check(rate, "rate")
    gaps = [-math.log1p(-draws.uniform()) / rate for _ in range(count - 1)]
    return [round(time, 9) for time in accumulate(gaps, initial=0.0)][:count]


def at_rate(name: str, count: int, rate: float, draws: Draws) -> list[float]:
    """Arrivals by the policy's name, one of ``NAMES``."""
    return constant_rate(count, rate) if name == "constant" else poisson(count, rate, draws)


def replayed(times_s: Sequence[float], speedup: float = 1.0) -> list[float]:
    """The arrivals of a trace from its first on, ``speedup`` times as fast. Ascending; equal times stay equal.

    Raises ``ValueError``: the times descend, or are not numbers; or the speedup is not above 0.
    """
    _check(speedup, "speedup")
    for place, (before, after) in enumerate(pairwise(times_s)):
        if not before <= after:
            raise ValueError(f"arrival {place + 1} is at {after} s, before the one ahead of it at {before} s")
    if not all(map(math.isfinite, times_s)):
        raise ValueError("an arrival is not at a finite time")
    return [(time - times_s[0]) / speedup for time in times_s]


def _check(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"a {name} of {value}; it must be a number above 0")
