"""How much TTFT varies: each repeat by itself, and outliers, which are shown and never dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvbench.analysis.cache import sources
from kvbench.analysis.latency import timed
from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import Statistics, statistics

FENCE = 3.0
"""Interquartile ranges beyond the quartiles at which an outlier begins: Tukey's outer fence (Exploratory Data Analysis, 1977)."""

LEAST = 0.25
"""Share of the median by which an outlier differs at least: among values that hardly differ, the fence alone would name any."""

_QUARTILES_NEED = 5
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RepeatRow:
    """One repeat of one pass of one arm. TTFT in ms."""

    arm: str
    pass_label: str
    pass_index: int
    repeat: int
    failed: int
    ttft_ms: Statistics


def repeat_rows(view: RunView) -> Iterator[RepeatRow]:
    """A row for each arm, pass and repeat that has a request."""
    groups: dict[Any, pd.DataFrame] = dict(iter(view.table.groupby(["arm", "pass_index", "repeat"])))
    for arm in view.arms:
        for of, index, repeat in sorted(key for key in groups if key[0] == arm):
            rows = groups[of, index, repeat]
            ttft = statistics(timed(rows)["ttft_ms"])
            yield RepeatRow(arm, view.labels[index], int(index), int(repeat), int(rows["failed"].sum()), ttft)


@dataclass(frozen=True, slots=True)
class Outliers:
    """The outliers of one pass of one arm among its ``n`` requests: how many, and the farthest, in ms."""

    arm: str
    pass_index: int
    n: int
    count: int
    farthest_ms: float


def outliers(view: RunView) -> Iterator[Outliers]:
    """Where requests lie beyond the fence of those of the same arm, pass and source: a hit among computed ones is none."""
    known = timed(view.table)
    alike = known.groupby([known["arm"], known["pass_index"], sources(known, view.info).rename("source")])
    known = known.assign(beyond_ms=alike["ttft_ms"].transform(_beyond))
    passes: dict[Any, pd.DataFrame] = dict(iter(known.groupby(["arm", "pass_index"])))
    for (arm, index), rows in passes.items():
        if count := int((rows["beyond_ms"] > 0).sum()):
            yield Outliers(arm, int(index), len(rows), count, float(rows["ttft_ms"].iloc[rows["beyond_ms"].argmax()]))


def _beyond(values: pd.Series[float]) -> pd.Series[float]:
    """How far each value lies beyond the fence, in ms; 0 or less within it."""
    if len(values) < _QUARTILES_NEED:
        return values * 0
    low, middle, high = np.percentile(values, [25, 50, 75])
    beyond: pd.Series[float] = (values - high).clip(lower=low - values) - FENCE * (high - low)
    return beyond.clip(upper=(values - middle).abs() - LEAST * middle)


def outlier_note(found: Iterable[Outliers], labels: Mapping[int, str]) -> Iterator[str]:
    """One note that names the outliers."""
    rows = sorted(found, key=lambda row: row.count, reverse=True)
    if not rows:
        return
    named = [f"{row.arm}, {labels[row.pass_index]}: {row.count} of {row.n:,}, as {row.farthest_ms:,.1f} ms" for row in rows[:_SHOWN]]
    more = f"; and in {len(rows) - _SHOWN} more passes" if len(rows) > _SHOWN else ""
    yield (
        f"outliers, all counted: {'; '.join(named)}{more} (beyond {FENCE:g} interquartile ranges and {LEAST * 100:.0f} % of the median "
        "of the same arm, pass and source); a median hardly sees them, a mean does"
    )
