"""Latency: which requests have one, and in open loops the latency from when a request should have been sent.

Failed requests are never in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import Statistics, statistics


def timed(frame: pd.DataFrame) -> pd.DataFrame:
    """The requests that have a latency: not failed, and with a first token."""
    return frame[~frame["failed"] & frame["ttft_ms"].notna()]


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """One pass of one arm of an open loop, all repeats. ``ttft_ms``: first token − scheduled; ``late_ms``: sent − scheduled."""

    arm: str
    pass_label: str
    pass_index: int
    ttft_ms: Statistics
    late_ms: Statistics


def scheduled_rows(view: RunView) -> Iterator[ScheduledRow]:
    """A row for each arm and pass of an open loop, arms in their order; none of a closed loop, which schedules what it sends."""
    if not view.info.open_loop or view.info.simulated:
        return
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for line in view.requests:
        if line["error"] is None and line["first_token_s"] is not None and line["sent_s"] is not None:
            times = (line["first_token_s"] - line["scheduled_s"]) * 1e3, (line["sent_s"] - line["scheduled_s"]) * 1e3
            found.setdefault((line["arm"], line["pass_index"]), []).append(times)
    for arm in view.arms:
        for index, label in view.labels.items():
            if (arm, index) in found:
                yield ScheduledRow(arm, label, index, *(statistics(values) for values in zip(*found[arm, index], strict=True)))
