"""The cache: from which tier the prompt tokens came, and what a load costs against computing the same tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvbench.analysis.latency import timed
from kvbench.analysis.run_info import Setup

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
        requests: the pass's rows of :func:`kvbench.analysis.request_table.request_frame`; failed ones are left out.
        finished: repeats that finished this pass. If there are any, a repeat that was cut short is left out too.
    """
    counted = ~requests["failed"].to_numpy()
    if finished:
        counted &= np.isin(requests["repeat"].to_numpy(), list(finished))
    if not counted.any():
        return Tokens(None, None, None, None)
    names, place = np.unique(requests["repeat"].to_numpy()[counted], return_inverse=True)
    sums = np.zeros((len(names), 4))  # one request of unknown origin makes the sum of its repeat unknown, never smaller
    np.add.at(sums, place, requests[["prompt", "device", "host", "computed"]].to_numpy()[counted])
    prompt, device, host, computed = (None if np.isnan(total) else round(float(total)) for total in sums.mean(axis=0))
    return Tokens(prompt, device, host, computed, same=bool(((sums == sums[0]) | (np.isnan(sums) & np.isnan(sums[0]))).all()))


def counted_in_pass(lines: Sequence[Mapping[str, Any]]) -> Tokens:
    """Tokens of one pass of one arm where only the pass as a whole was counted: from its lines, one a repeat."""
    columns = ["cached_tokens_device", "cached_tokens_host", "computed_tokens"]
    counts = pd.DataFrame([{name: line.get(name) for name in columns} for line in lines], columns=columns, dtype="float64")
    if counts.empty or counts.isna().any(axis=None):
        return Tokens(None, None, None, None)
    device, host, computed = (round(float(counts[name].mean())) for name in columns)
    return Tokens(device + host + computed, device, host, computed, same=bool((counts.nunique() == 1).all()))


def sources(frame: pd.DataFrame, setup: Setup) -> pd.Series[str]:
    """The source of each row, one of :data:`SOURCES`.

    A hit may leave the question and the rest of a block (device) or of a chunk (host) to compute; more than that is partial. A log does
    not say how long they are, so that there a hit of any size is a hit.
    """
    device, host, computed = frame["device"], frame["host"], frame["computed"]
    question, block = setup.question_tokens or 0, setup.block_size or 0
    from_host = host > 0
    left = np.inf if setup.of_log else np.where(from_host, question + (setup.chunk_tokens or block), question + block)
    known = [device.isna() | host.isna() | computed.isna(), device + host == 0, computed > left, from_host]
    return pd.Series(np.select(known, ["unknown", "computed", "partial", "host hit"], "device hit"), index=frame.index, dtype="object")


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
