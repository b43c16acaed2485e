"""The metrics of one pass of one arm, from what a baseline keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvbench.comparison.baseline import Cell
from kvbench.metrics.metric import ComparedBy, Metric
from kvbench.metrics.repeat import Repeat


@dataclass(frozen=True, slots=True)
class PassMetrics:
    """The metrics of one pass of one arm; ``baseline`` is the same pass of the arm that speedups are over, if it is another."""

    cell: Cell
    baseline: Cell | None

    def by_run(self, metric: Metric) -> list[list[float]]:
        """A metric in each repeat that has it, run by run.

        A speedup is over the same repeat of the baseline arm, which ran minutes before or after.
        """
        over = {} if self.baseline is None else {(repeat.run, repeat.repeat): repeat for repeat in self.baseline.repeats}
        return self._by_run(lambda repeat: metric.of_repeat(repeat, over.get((repeat.run, repeat.repeat))))

    def shares(self, tier: str) -> list[list[float]]:
        """Tokens of a tier as a share of the prompt, in each repeat where both are known, run by run."""
        return self._by_run(lambda repeat: repeat.share(tier))

    def _by_run(self, value_of: Callable[[Repeat], float | None]) -> list[list[float]]:
        runs: dict[int, list[float]] = {}
        for repeat in self.cell.repeats:
            if (value := value_of(repeat)) is not None:
                runs.setdefault(repeat.run, []).append(float(value))
        return list(runs.values())

    def value(self, metric: Metric) -> float | None:
        """A metric of the whole pass; ``None``: unknown."""
        if metric.of_whole_pass:
            return metric.of_row(self.cell)
        values = [value for run in self.by_run(metric) for value in run]
        if metric.compared is ComparedBy.TOKENS and len(values) < len(self.cell.repeats):
            return None  # a tier that one repeat does not know
        return metric.over_repeats(values) if values else None


def metrics_of(cells: Sequence[Cell]) -> Mapping[tuple[str, str], PassMetrics]:
    """The metrics of every pass, by arm and pass label; the first arm is what speedups are over."""
    first = cells[0].arm if cells else None
    over = {cell.pass_label: cell for cell in cells if cell.arm == first}
    return {(cell.arm, cell.pass_label): PassMetrics(cell, None if cell.arm == first else over.get(cell.pass_label)) for cell in cells}
