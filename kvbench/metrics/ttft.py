"""Time to first token. The requests of a pass that failed or gave no token have none."""

from __future__ import annotations

from operator import attrgetter

from kvbench.analysis.statistics import P90_NEEDS, P99_NEEDS, geometric_mean
from kvbench.drawing.numbers import decimal
from kvbench.metrics.metric import ComparedBy, Metric


def _compared(statistic: str, formula: str, header: str, place: int) -> Metric:
    return Metric(
        name=f"ttft_{statistic}", unit="ms", formula=formula, header=header, worse="higher", measure=attrgetter(f"ttft.{statistic}"),
        over_repeats=geometric_mean, withheld="n = 0", compared=ComparedBy.RATIO, words=("slower", "faster"), cell=decimal,
        column=1 + place, order=place, heading="TTFT (ms)", label=statistic, of_machine=True, row=f"ttft_ms.{statistic}", repeat=statistic,
    )  # fmt: skip


def _limited(statistic: str, formula: str, needs: int, place: int, column: float | None = None) -> Metric:
    return Metric(
        name=f"ttft_{statistic}", unit="ms", formula=formula, header=statistic, worse="higher", measure=attrgetter(f"ttft.{statistic}"),
        withheld=f"below {needs} samples" if needs > 1 else "n = 0", needs=needs, cell=decimal, column=column, hidden_unknown=True,
        order=50 + place, of_machine=True, row=f"ttft_ms.{statistic}",
    )  # fmt: skip


METRICS = (
    _compared("p50", "median of the requests' TTFT; percentiles interpolate linearly, as numpy's do", "TTFT p50", 0),
    _compared("mean", "arithmetic mean of the requests' TTFT", "mean", 1),
    _limited("p90", "90th percentile of the requests' TTFT", P90_NEEDS, 0, 2.1),
    _limited("p99", "99th percentile of the requests' TTFT", P99_NEEDS, 1, 2.2),
    _limited("min", "least TTFT", 1, 2),
    _limited("max", "greatest TTFT", 1, 3),
    _limited("std", "standard deviation of the sample (n − 1)", 2, 4),
)
