"""Metrics of a latency that every request has: its median and mean, which are compared, and its tails, which only thresholds name."""

from __future__ import annotations

from operator import attrgetter

from kvbench.analysis.statistics import P90_NEEDS, P99_NEEDS, geometric_mean
from kvbench.drawing.numbers import decimal
from kvbench.metrics.metric import ComparedBy, Metric


def percentiles(
    latency: str, formula: str, withheld: str, order: int, column: float, compared: ComparedBy = ComparedBy.RATIO
) -> tuple[Metric, ...]:
    """The metrics of a latency of :class:`kvbench.metrics.metric.PassRequests`, which is its name in small letters.

    Args:
        latency: ``tpot``, ``itl`` or ``e2el``.
        formula: what one value is.
        withheld: when a request has none.
        order: the place of the first one in lists.
        column: the place of the median in the table of load.
        compared: how the median is compared.
    """

    def metric(statistic: str, of_all: str, needs: int, place: int, compared: ComparedBy = ComparedBy.LIMIT) -> Metric:
        tail = statistic in ("p90", "p99")
        why = f"below {needs} samples" if tail else withheld
        return Metric(
            name=f"{latency}_{statistic}", unit="ms", formula=f"{of_all} of {formula}", worse="higher", withheld=why, needs=needs,
            compared=compared, header=f"{latency.upper()} {statistic}" if tail else latency.upper(),
            measure=attrgetter(f"{latency}.{statistic}"),
            over_repeats=geometric_mean, words=("slower", "faster"), cell=decimal, column=None if statistic == "mean" else column + place,
            hidden_unknown=tail, table="tail" if tail else "load", order=order + place, heading=f"{latency.upper()} (ms)", label=statistic,
            of_machine=True, row=f"{latency}_ms.{statistic}", by_repeat=compared is ComparedBy.RATIO,
        )  # fmt: skip

    return (
        metric("p50", "median", 1, 0, compared),
        metric("mean", "mean", 1, 1),
        metric("p90", "90th percentile", P90_NEEDS, 2),
        metric("p99", "99th percentile", P99_NEEDS, 3),
    )
