"""Lengths of prompts and outputs: one for all, or drawn from a stated distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from kvbench.workloads.draws import Draws

FORMS = "a number, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over whole tokens, at least 1. ``text`` is how the user says it.

    Kinds: ``fixed`` (first), ``uniform`` (from first to second, both included), ``lognormal`` (median first, spread of the logarithm
    second; lengths of real prompts and answers are near it).
    """

    text: str
    kind: str
    first: float
    second: float

    @property
    def fixed(self) -> int | None:
        """The one length, ``None`` where lengths differ."""
        return int(self.first) if self.kind == "fixed" else None

    def draw(self, draws: Draws) -> int:
        """The next length."""
        if self.kind == "fixed":
            return int(self.first)
        if self.kind == "uniform":
            return draws.integers(1, int(self.first), int(self.second) + 1)[0]
        between = min(max(draws.uniform(), 2**-53), 1 - 2**-53)
        return max(round(self.first * math.exp(self.second * NormalDist().inv_cdf(between))), 1)


def parse_lengths(text: str) -> Lengths:
    """``256``, ``uniform:64:512`` or ``lognormal:200:0.8``; ``ValueError``: it is none of these, or out of range."""
    kind, *words = text.replace("_", "").split(":")
    try:
        if not words:
            kind, numbers = "fixed", [float(int(kind)), 0.0]
        else:
            numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if kind not in ("fixed", "uniform", "lognormal") or len(numbers) != 2:
        raise ValueError(f"{FORMS} is expected, as in lognormal:200:0.8")
    first, second = numbers
    if not 1 <= first <= 10**6:
        raise ValueError("lengths are from 1 to 1,000,000 tokens")
    if kind == "uniform" and not (first <= second <= 10**6 and first == int(first) and second == int(second)):
        raise ValueError("uniform:LOW:HIGH takes two whole numbers of tokens, the smaller one first")
    if kind == "lognormal" and not 0 < second <= 3:
        raise ValueError("lognormal:MEDIAN:SIGMA takes a spread of the logarithm above 0, at most 3, as in lognormal:200:0.8")
    return Lengths(text, kind, first, second)
