"""The figures of one pass of one arm that two runs are compared by and thresholds are set on, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvbench.analysis.statistics import geometric_mean
from kvbench.compare.baseline import Cell, Repeat

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
        """:meth:`by_run`, whatever the run."""
        return [value for run in self.by_run(name) for value in run]

    def by_run(self, name: str) -> list[list[float]]:
        """A figure of :data:`TIMES`, :data:`SPEEDUPS`, :data:`TOKENS` or :data:`COUNTS` in each repeat that has it, run by run.

        A speedup is over the same repeat of the baseline arm, which ran minutes before or after.
        """
        if name in SPEEDUPS:
            return self._speedups(name.removeprefix("speedup_"))
        field = name.removeprefix("ttft_")
        return self._by_run(lambda repeat: getattr(repeat, field))

    def _speedups(self, statistic: str) -> list[list[float]]:
        if self.baseline is None:
            return []
        over = {(repeat.run, repeat.repeat): getattr(repeat, statistic) for repeat in self.baseline.repeats}

        def speedup(repeat: Repeat) -> float | None:
            base, own = over.get((repeat.run, repeat.repeat)), getattr(repeat, statistic)
            return base / own if base is not None and own else None

        return self._by_run(speedup)

    def shares(self, name: str) -> list[list[float]]:
        """Tokens of a tier as a share of the prompt, in each repeat where both are known, run by run."""

        def share(repeat: Repeat) -> float | None:
            tokens = getattr(repeat, name)
            return tokens / repeat.prompt if tokens is not None and repeat.prompt else None

        return self._by_run(share)

    def _by_run(self, figure: Callable[[Repeat], float | None]) -> list[list[float]]:
        runs: dict[int, list[float]] = {}
        for repeat in self.cell.repeats:
            if (value := figure(repeat)) is not None:
                runs.setdefault(repeat.run, []).append(float(value))
        return list(runs.values())

    def value(self, name: str) -> float | None:
        """The figure of the whole pass: of times and speedups the repeats' geometric mean, of counts their mean, of failures
        their sum; ``None``: unknown."""
        if name in RATES:
            shares = [share for run in self.shares(name.removesuffix("_hit_rate")) for share in run]
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


def figures_of(cells: Sequence[Cell]) -> Mapping[tuple[str, str], Figures]:
    """The figures of every pass, by arm and pass label; the first arm is what speedups are over."""
    first = cells[0].arm if cells else None
    over = {cell.pass_label: cell for cell in cells if cell.arm == first}
    return {(cell.arm, cell.pass_label): Figures(cell, None if cell.arm == first else over.get(cell.pass_label)) for cell in cells}
