"""The cache: from which tier the prompt tokens came, and what a load costs against computing the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from kvbench.analysis.latency import timed
from kvbench.analysis.setup import Setup

SOURCES = ("computed", "partial", "host hit", "device hit", "unknown")
"""Where a prompt came from, in the order in which tables show it."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Prompt tokens of one pass by tier, ``None`` where unknown; where repeats differ (``same`` is false), their rounded mean."""

    prompt: int | None
    device: int | None
    host: int | None
    computed: int | None
    same: bool = True

    def hit_rate(self, tokens: int | None) -> float | None:
        """``tokens`` ÷ prompt tokens, 0 to 1; ``None`` where either is unknown or there is no prompt."""
        return None if tokens is None or not self.prompt else tokens / self.prompt


def tokens_of_pass(requests: pd.DataFrame, finished: set[int]) -> Tokens:
    """Tokens of one pass of one arm: what one repeat shows when all repeats agree, else their rounded mean.

    Args:
        requests: the pass's rows of :func:`kvbench.analysis.frame.request_frame`; failed ones are left out.
        finished: repeats that finished this pass. If there are any, a repeat that was cut short is left out too.
    """
    counted = requests[~requests["failed"]]
    if finished:
        counted = counted[counted["repeat"].isin(finished)]
    columns = ["prompt", "device", "host", "computed"]
    # skipna: one request of unknown origin makes the sum of its repeat unknown, never smaller.
    sums = counted.groupby("repeat")[columns].sum(skipna=False)
    if sums.empty:
        return Tokens(None, None, None, None)
    prompt, device, host, computed = (None if sums[name].isna().any() else round(float(sums[name].mean())) for name in columns)
    return Tokens(prompt, device, host, computed, same=bool((sums[columns].nunique(dropna=False) == 1).all()))


def source(device: float, host: float, computed: float, setup: Setup) -> str:
    """The source of one request's prompt, one of :data:`SOURCES`; NaN is unknown.

    A hit may leave the question and the rest of a block (device) or of a chunk (host) to compute; more than that is partial.
    """
    if pd.isna(device) or pd.isna(host) or pd.isna(computed):
        return "unknown"
    if device + host == 0:
        return "computed"
    question, block = setup.question_tokens or 0, setup.block_size or 0
    if host == 0:
        return "device hit" if computed <= question + block else "partial"
    return "host hit" if computed <= question + (setup.chunk_tokens or block) else "partial"


def sources(frame: pd.DataFrame, setup: Setup) -> pd.Series[str]:
    """The source of each row."""
    rows = zip(frame["device"], frame["host"], frame["computed"], strict=True)
    return pd.Series([source(device, host, computed, setup) for device, host, computed in rows], index=frame.index, dtype="object")


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


def load_cost(frame: pd.DataFrame, arm: str, setup: Setup) -> LoadCost | None:
    """What a load of the arm costs; ``None`` without a timed load, or without a fully computed request to compare with."""
    known = timed(frame)
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
        gib_per_s=None if rate is None or setup.bytes_per_token is None else rate * setup.bytes_per_token / 2**30,
        compute_ms=compute_ms,
        ratio=compute_ms / load_ms if load_ms > 0 else None,
    )
