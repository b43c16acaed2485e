"""Of a pass as a whole: counts, and its time."""

from __future__ import annotations

from kvbench.drawing.layout import grouped
from kvbench.drawing.numbers import decimal
from kvbench.metrics.metric import ComparedBy, Metric, total

METRICS = (
    Metric(
        name="preemptions", unit="", formula="preemptions of the pass's requests, mean of the repeats", header="preemptions",
        worse="higher", measure=lambda one: total(one.answered["preemptions"]), withheld="any request's are unknown",
        compared=ComparedBy.COUNT, words=("more", "fewer"), show=grouped, column=None, order=30, repeat="preemptions",
    ),
    Metric(
        name="failed", unit="", formula="requests that failed, over all repeats", header="failed", worse="higher",
        measure=lambda one: int(one.rows["failed"].sum()), over_repeats=sum, compared=ComparedBy.EXACT, words=("more", "fewer"),
        show=grouped, column=0, order=31, hidden_at_0=True, row="failed", repeat="failed",
    ),
    Metric(
        name="pass_s", unit="s", header="pass s", worse="higher",
        formula="first send to last token of a pass, without counter reads and waits for stores; the median over repeats",
        measure=lambda one: one.line.get("wall_s"), withheld="no repeat finished the pass, or these are unknown", cell=decimal, column=4,
        order=60, of_machine=True, row="pass_s",
    ),
)  # fmt: skip
