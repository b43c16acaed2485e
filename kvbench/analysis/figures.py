"""The figures of one pass of one arm that two runs are compared by and thresholds are set on, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvbench.analysis.baseline import Cell

TIMES = ("ttft_p50", "ttft_mean")
SPEEDUPS = ("speedup_p50", "speedup_mean")
TOKENS = ("device", "host", "computed")
COUNTS = ("preemptions", "failed")
RATES = ("device_hit_rate", "host_hit_rate")
OTHERS = ("ttft_p90", "ttft_p99", "ttft_min", "ttft_max", "ttft_std", "pass_s")
ALL = (*TIMES, *SPEEDUPS, *TOKENS, *COUNTS, *RATES, *OTHERS)

UNITS = {"pass_s": "s"} | dict.fromkeys(SPEEDUPS, "x") | dict.fromkeys(TOKENS, "tokens")


def unit(name: str) -> str:
    """The unit of a figure, empty for counts and shares."""
    return "ms" if name.startswith("ttft") else UNITS.get(name, "")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one pass of one arm; ``baseline`` is the same pass of the arm that speedups are over, if it is another."""

    cell: Cell
    baseline: Cell | None

    def by_repeat(self, name: str) -> list[float]:
        """A figure of :data:`TIMES`, :data:`SPEEDUPS`, :data:`TOKENS` or :data:`COUNTS` in each repeat that has it.

        A speedup is over the same repeat of the baseline arm, which ran minutes before or after.
        """
        if name in SPEEDUPS:
            return self._speedups(name.removeprefix("speedup_"))
        field = name.removeprefix("ttft_")
        return [float(value) for repeat in self.cell.repeats if (value := getattr(repeat, field)) is not None]

    def _speedups(self, statistic: str) -> list[float]:
        if self.baseline is None:
            return []
        over = {repeat.repeat: getattr(repeat, statistic) for repeat in self.baseline.repeats}
        pairs = [(over.get(repeat.repeat), getattr(repeat, statistic)) for repeat in self.cell.repeats]
        return [base / own for base, own in pairs if base is not None and own]

    def shares(self, name: str) -> list[float]:
        """Tokens of a tier as a share of the prompt, in each repeat where both are known."""
        pairs = [(getattr(repeat, name), repeat.prompt) for repeat in self.cell.repeats]
        return [tokens / prompt for tokens, prompt in pairs if tokens is not None and prompt]

    def value(self, name: str) -> float | None:
        """The figure of the whole pass: of times and speedups the repeats' geometric mean, of counts their mean, of failures
        their sum; ``None``: unknown."""
        if name in RATES:
            shares = self.shares(name.removesuffix("_hit_rate"))
            return float(np.mean(shares)) if shares else None
        if name == "pass_s":
            return self.cell.pass_s
        if name in OTHERS:
            value: float | None = getattr(self.cell.ttft_ms, name.removeprefix("ttft_"))
            return value
        values = self.by_repeat(name)
        if name in TOKENS and len(values) < len(self.cell.repeats):
            return None  # a tier that one repeat does not know
        if not values:
            return None
        if name == "failed":
            return sum(values)
        return float(np.mean(values)) if name in TOKENS + COUNTS else geometric_mean(values)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; the value itself where there is one or all are equal; 0 if any is."""
    if min(values) == max(values) or min(values) <= 0:
        return min(values)
    return math.exp(float(np.mean(np.log(values))))


def figures_of(cells: Sequence[Cell]) -> Mapping[tuple[str, str], Figures]:
    """The figures of every pass, by arm and pass label; the first arm is what speedups are over."""
    first = cells[0].arm if cells else None
    over = {cell.pass_label: cell for cell in cells if cell.arm == first}
    return {(cell.arm, cell.pass_label): Figures(cell, None if cell.arm == first else over.get(cell.pass_label)) for cell in cells}
