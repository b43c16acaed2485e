"""The cache: where each prompt came from, and what a load costs against computing the same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvbench.analysis.latency import timed
from kvbench.analysis.run_info import RunInfo
from kvbench.analysis.run_view import RunView
from kvbench.analysis.statistics import Statistics, known_median, statistics

SOURCES = ("computed", "partial", "host hit", "device hit", "unknown")
"""Where a prompt came from, in the order in which tables show it."""


def sources(table: pd.DataFrame, info: RunInfo) -> pd.Series[str]:
    """The source of each row, one of :data:`SOURCES`.

    A hit may leave the question and the rest of a block (device) or of a chunk (host) to compute; more than that is partial. A log does
    not say how long they are, so that there a hit of any size is a hit.
    """
    device, host, computed = table["device"], table["host"], table["computed"]
    question, block = info.question_tokens or 0, info.block_size or 0
    from_host = host > 0
    left = np.inf if info.of_log else np.where(from_host, question + (info.chunk_tokens or block), question + block)
    known = [device.isna() | host.isna() | computed.isna(), device + host == 0, computed > left, from_host]
    return pd.Series(np.select(known, ["unknown", "computed", "partial", "host hit"], "device hit"), index=table.index, dtype="object")


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


@dataclass(frozen=True, slots=True)
class LoadCost:
    """One load from an arm's host tier against computing as many tokens.

    ``load_ms`` and ``tokens`` are medians over the requests that loaded. ``compute_ms`` is the time of that many tokens at the
    median rate of the run's fully computed requests, of any arm. ``ratio`` is ``compute_ms ÷ load_ms``; the rates are the load's.
    """

    arm: str
    loads: int
    tokens: float
    load_ms: float
    tokens_per_s: float | None
    gib_per_s: float | None
    compute_ms: float
    ratio: float | None


def load_cost(view: RunView, arm: str) -> LoadCost | None:
    """What a load of the arm costs; ``None`` without a timed load, or without a fully computed request to compare with."""
    known, size = timed(view.table), view.info.bytes_per_token
    loads = known[(known["arm"] == arm) & (known["host"] > 0) & known["restore_ms"].notna()]
    computed = known[(known["device"] == 0) & (known["host"] == 0) & (known["computed"] > 0) & known["compute_ms"].notna()]
    if loads.empty or computed.empty:
        return None
    tokens, load_ms = float(loads["host"].median()), float(loads["restore_ms"].median())
    compute_ms = float((computed["compute_ms"] / computed["computed"]).median()) * tokens
    rate = tokens / load_ms * 1e3 if load_ms > 0 else None
    return LoadCost(
        arm=arm,
        loads=len(loads),
        tokens=tokens,
        load_ms=load_ms,
        tokens_per_s=rate,
        gib_per_s=None if rate is None or size is None else rate * size / 2**30,
        compute_ms=compute_ms,
        ratio=compute_ms / load_ms if load_ms > 0 else None,
    )
