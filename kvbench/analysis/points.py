"""What plots show beside the summary: single requests, as few as can be told apart on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvbench.analysis.cache import SOURCES, sources
from kvbench.analysis.latency import timed
from kvbench.analysis.run_view import RunView
from kvbench.analysis.stalls import PARTS, splits
from kvbench.analysis.timeline import GAP, Timeline, timelines
from kvbench.models.units import ceil_div

MOST_PLACES = 120
"""Places of a pass that are shown; where it has more, neighbours are shown as one, by their median."""

MOST_POINTS = 300
"""Requests of a group that are shown; where it has more, evenly spaced quantiles of them."""

MOST_STALLS = 20
"""Stalls that are shown, the longest first."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PassPoints:
    """One pass of one arm, in the order in which it was read: TTFT in ms, the median over repeats, NaN where there is none.

    ``documents``: their names. ``merged``: how many neighbours a place stands for; above 1 there are no names.
    """

    arm: str
    pass_label: str
    documents: tuple[str, ...]
    ttft_ms: Array
    merged: int


@dataclass(frozen=True, slots=True)
class SourcePoints:
    """TTFT in ms of the ``n`` requests of one arm and source, sorted, and their median."""

    arm: str
    source: str
    n: int
    p50_ms: float
    ttft_ms: Array


@dataclass(frozen=True, slots=True)
class ForeseenPoints:
    """Predicted and measured TTFT in ms of requests of one arm, in the order of the predicted ones."""

    arm: str
    predicted_ms: Array
    measured_ms: Array


@dataclass(frozen=True, slots=True)
class StallPoint:
    """One stall, its time in ms by what it was spent on; one part where the runner could not know."""

    request_id: str
    after_token: int
    total_ms: float
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Points:
    """What plots show; ``stalls`` are the longest."""

    passes: tuple[PassPoints, ...]
    sources: tuple[SourcePoints, ...]
    foreseen: tuple[ForeseenPoints, ...]
    stalls: tuple[StallPoint, ...]
    timelines: tuple[Timeline, ...]


def points_of(view: RunView, all_timelines: bool = False) -> Points:
    """The points of a run; ``all_timelines``: also where nothing was preempted."""
    known = timed(view.table)
    return Points(
        passes=tuple(_passes(view)),
        sources=tuple(_sources(known, view)) if view.judges_tiers else (),
        foreseen=tuple(_foreseen(known, view.arms)),
        stalls=tuple(nlargest(MOST_STALLS, _stalls(view), key=lambda stall: stall.total_ms)),
        timelines=timelines(view, all_timelines),
    )


def _passes(view: RunView) -> Iterator[PassPoints]:
    place = ["arm", "pass_index", "position"]
    table = view.table.assign(ttft_ms=view.table["ttft_ms"].where(~view.table["failed"])).groupby(place, sort=True)
    medians = table.agg({"ttft_ms": "median", "doc_id": "first"}).reset_index()
    groups: dict[Any, pd.DataFrame] = dict(iter(medians.groupby(["arm", "pass_index"])))
    names = view.info.document_names
    for arm in view.arms:
        for index, label in view.labels.items():
            rows = groups.get((arm, index))
            if rows is None:
                continue
            values, merged = rows["ttft_ms"].to_numpy(np.float64), ceil_div(len(rows), MOST_PLACES)
            if merged > 1:
                parts = np.array_split(values, ceil_div(len(values), merged))
                yield PassPoints(arm, label, (), np.array([pd.Series(part).median() for part in parts]), merged)
            else:
                documents = tuple(_name(doc, position, names) for doc, position in zip(rows["doc_id"], rows["position"], strict=True))
                yield PassPoints(arm, label, documents, values, merged)


def _name(doc: Any, position: int, names: tuple[str, ...] | None) -> str:
    """A document's name, its number where it has none, its place in the pass where a log says neither."""
    if pd.isna(doc):
        return str(position)
    return names[int(doc)] if names is not None and doc < len(names) else str(int(doc))


def _sources(known: pd.DataFrame, view: RunView) -> Iterator[SourcePoints]:
    groups: dict[Any, pd.DataFrame] = dict(iter(known.groupby([known["arm"], sources(known, view.info).rename("source")])))
    for arm in view.arms:
        for source in SOURCES:
            if (arm, source) in groups:
                values = groups[arm, source]["ttft_ms"].to_numpy(np.float64)
                yield SourcePoints(arm, source, len(values), float(np.median(values)), _fewer(np.sort(values)))


def _foreseen(known: pd.DataFrame, arms: Sequence[str]) -> Iterator[ForeseenPoints]:
    both = known[known["foreseen_ttft_ms"].notna()].sort_values(["foreseen_ttft_ms", "ttft_ms"])
    for arm in arms:
        rows = both[both["arm"] == arm]
        if not rows.empty:
            rows = rows.iloc[_fewer(np.arange(len(rows), dtype=np.float64)).astype(int)]
            yield ForeseenPoints(arm, rows["foreseen_ttft_ms"].to_numpy(np.float64), rows["ttft_ms"].to_numpy(np.float64))


def _stalls(view: RunView) -> Iterator[StallPoint]:
    for line in view.requests:
        for token, split in splits(line):
            parts = ((name.removesuffix("_ms").replace("_", " "), getattr(split, name)) for name in PARTS)
            spent = ((GAP, split.total_ms),) if split.waiting_ms is None else tuple(parts)
            yield StallPoint(line["request_id"], token, split.total_ms, spent)


def _fewer(values: Array) -> Array:
    """The values themselves, or evenly spaced ones of the sorted values, the extremes among them."""
    if len(values) <= MOST_POINTS:
        return values
    return np.asarray(values[np.linspace(0, len(values) - 1, MOST_POINTS).round().astype(int)])
