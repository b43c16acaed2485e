"""Throughput: what a pass delivered a second, first send to last token."""

from __future__ import annotations

from kvbench.drawing.numbers import decimal
from kvbench.metrics.metric import ComparedBy, Metric


def _throughput(part: str, what: str, header: str, place: int) -> Metric:
    name = f"{part}_throughput"
    return Metric(
        name=name, unit=f"{what}/s", formula=f"{what} of completed requests ÷ pass time, mean of the repeats", header=header, worse="lower",
        measure=lambda one: getattr(one.throughput, part.removesuffix("_token")), withheld="pass time or tokens are unknown",
        compared=ComparedBy.RATIO if part == "output" else ComparedBy.LIMIT, words=("slower", "faster"), cell=decimal, column=place,
        table="load", order=62 + place, heading=f"Throughput ({what}/s)", label="", of_machine=True, row=name, by_repeat=True,
    )  # fmt: skip


METRICS = (
    _throughput("request", "requests", "req/s", 0),
    _throughput("output", "output tokens", "out tok/s", 1),
    _throughput("total_token", "prompt and output tokens", "tok/s", 2),
)
