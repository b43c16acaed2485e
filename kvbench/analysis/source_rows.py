"""The requests of a run by where their prompts came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kvbench.analysis.cache import SOURCES, sources
from kvbench.analysis.latency import timed
from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import Statistics, known_median, statistics


@dataclass(frozen=True, slots=True)
class SourceRow:
    """The requests of one arm, all passes, whose prompt came from one source; tokens are medians. ``None`` is unknown."""

    arm: str
    source: str
    tier: bool
    answered: int
    ttft_ms: Statistics
    device: float | None
    host: float | None
    computed: float | None


def source_rows(view: RunView) -> Iterator[SourceRow]:
    """A row for each arm and source that has an answered request."""
    answered = view.table[~view.table["failed"]]
    groups: dict[Any, pd.DataFrame] = dict(iter(answered.groupby([answered["arm"], sources(answered, view.info).rename("source")])))
    for arm in view.arms:
        for name in SOURCES:
            rows = groups.get((arm, name))
            if rows is not None:
                device, host, computed = (known_median(rows[tier]) for tier in ("device", "host", "computed"))
                yield SourceRow(arm, name, view.has_tier(arm), len(rows), statistics(timed(rows)["ttft_ms"]), device, host, computed)
