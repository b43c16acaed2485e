"""Latency from when a request should have been sent, for open loops: the wait before sending is in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import Statistics, statistics


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """One pass of one arm, all repeats. ``ttft_ms``: first token − scheduled; ``late_ms``: sent − scheduled."""

    arm: str
    pass_label: str
    pass_index: int
    ttft_ms: Statistics
    late_ms: Statistics


def scheduled_rows(view: RunView) -> Iterator[ScheduledRow]:
    """A row for each arm and pass of an open loop, arms in their order; none of a closed loop, which schedules what it sends."""
    if not view.info.open_loop or view.info.simulated:
        return
    ttft: dict[tuple[str, int], list[float]] = {}
    late: dict[tuple[str, int], list[float]] = {}
    for line in view.requests:
        if line["error"] is not None or line["first_token_s"] is None or line["sent_s"] is None:
            continue
        place = line["arm"], line["pass_index"]
        ttft.setdefault(place, []).append((line["first_token_s"] - line["scheduled_s"]) * 1e3)
        late.setdefault(place, []).append((line["sent_s"] - line["scheduled_s"]) * 1e3)
    for arm in view.arms:
        for index, label in view.labels.items():
            if (arm, index) in ttft:
                yield ScheduledRow(arm, label, index, statistics(ttft[arm, index]), statistics(late[arm, index]))
