"""Speedup over the first arm."""

from __future__ import annotations

from kvbench.analysis.statistics import geometric_mean
from kvbench.drawing.numbers import times
from kvbench.metrics.metric import ComparedBy, Metric
from kvbench.metrics.repeat import Repeat


def _speedup(statistic: str, what: str, place: int, column: int | None) -> Metric:
    def derive(repeat: Repeat, over: Repeat | None) -> float | None:
        base, own = None if over is None else getattr(over, statistic), getattr(repeat, statistic)
        return base / own if base is not None and own else None

    return Metric(
        name=f"speedup_{statistic}", unit="x", formula=f"{what} TTFT of the baseline arm ÷ {what} TTFT of this arm, same pass",
        header="vs {baseline}", worse="lower", over_repeats=geometric_mean, withheld="no data in either arm", compared=ComparedBy.RATIO,
        words=("slower", "faster"), show=lambda value: f"{value:.2f}x", cell=times, column=column, order=10 + place,
        heading="Speedup over {baseline}", label=statistic, over_baseline=True, row=f"speedup.{statistic}", derive=derive,
    )  # fmt: skip


METRICS = (_speedup("p50", "median", 0, 3), _speedup("mean", "mean", 1, None))
