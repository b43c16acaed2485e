"""Latency: which requests have one, and how long a pass took. Failed requests are never in it."""

from __future__ import annotations

from statistics import median

import pandas as pd

from kvbench.runs.run_folder import Run


def timed(frame: pd.DataFrame) -> pd.DataFrame:
    """The requests that have a latency: not failed, and with a first token."""
    return frame[~frame["failed"] & frame["ttft_ms"].notna()]


def pass_seconds(run: Run) -> dict[tuple[str, int], float]:
    """Pass time by arm and pass index: first send to last token, in seconds; the median over repeats."""
    walls: dict[tuple[str, int], list[float]] = {}
    for line in run.passes:
        if line["wall_s"] is not None:
            walls.setdefault((line["arm"], line["pass_index"]), []).append(line["wall_s"])
    return {key: median(values) for key, values in walls.items()}
