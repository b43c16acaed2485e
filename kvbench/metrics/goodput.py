"""Goodput: requests a second that met the objective of ``--slo``."""

from __future__ import annotations

from kvbench.drawing.numbers import decimal, per_cent
from kvbench.metrics.metric import SHARE, Metric

_WITHHELD = "no --slo with a limit of each request, or a request's time is unknown"

METRICS = (
    Metric(
        name="request_goodput", unit="requests/s", formula="requests that met every limit of --slo ÷ pass time, mean of the repeats",
        header="goodput", worse="lower", measure=lambda one: one.throughput.good, withheld=_WITHHELD, cell=decimal, column=60, table="load",
        order=66, of_machine=True, row="request_goodput", hidden_unknown=True,
        by_repeat=True,
    ),
    Metric(
        name="slo_share", unit=SHARE, formula="requests that met every limit of --slo ÷ requests, 0 to 1", header="in SLO", worse="lower",
        measure=lambda one: one.in_slo, withheld=_WITHHELD, show=per_cent, column=61, table="load", order=67, row="slo_share",
        hidden_unknown=True,
        by_repeat=True,
    ),
)  # fmt: skip
