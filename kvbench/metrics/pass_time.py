"""Pass time."""

from __future__ import annotations

from kvbench.drawing.numbers import decimal
from kvbench.metrics.metric import Metric

METRICS = (
    Metric(
        name="pass_s", unit="s", formula="first send to last token of a pass; the median over repeats", header="pass s", worse="higher",
        measure=lambda one: one.line.get("wall_s"), withheld="no repeat finished the pass", cell=decimal, column=4, order=60,
        of_machine=True, row="pass_s",
    ),
)  # fmt: skip
