"""A trace over time: what comes again, after how long, and what the tiers give of it in each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvbench.runners.simulator.block_trace import BlockTrace, Integers
from kvbench.runners.simulator.simulator import TierTokens
from kvbench.runners.simulator.stack_distance import NEVER

QUANTILES = (0.5, 0.9, 0.99)
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of ``window`` seconds from ``start_s`` on, counted from the first request of the trace.

    ``within`` and ``before``: block accesses that a pool without a limit hits, because the block was last used in this window, or before
    it. ``device`` and ``host``: prompt tokens of the requests that fit the pool asked for, and those of ``prompt`` from each tier.
    """

    start_s: float
    requests: int
    accesses: int
    within: int
    before: int
    prompt: int | None
    device: int | None
    host: int | None


class ReuseTimes:
    """The block accesses of a trace with times, and which of them come again."""

    def __init__(self, times_s: Sequence[float], blocks: BlockTrace, needed: Integers, previous: Integers) -> None:
        """``needed``: the smallest pool of each access; ``previous``: the place of the same id before it, −1 for none."""
        self._times: Seconds = np.asarray(times_s, dtype=np.float64) - times_s[0]
        self._request = np.repeat(np.arange(len(blocks)), np.diff(blocks.starts))
        self._hit = needed != NEVER
        self._before = self._request[previous]  # of an access that hits, the request that used its block before

    def reuse_ages(self) -> tuple[float, ...] | None:
        """After how many seconds a block that comes again does: quantiles over accesses; ``None`` if none does."""
        if not self._hit.any():
            return None
        ages = self._times[self._request[self._hit]] - self._times[self._before[self._hit]]
        return tuple(np.quantile(ages, QUANTILES).tolist())

    def windows(self, seconds: float, tokens: Sequence[TierTokens | None] | None) -> Iterator[Window]:
        """Every window that has a request; ``tokens``: of each request, ``None`` for one that does not fit the pool."""
        number = np.floor(self._times / seconds).astype(np.int64)
        same = self._hit & (number[self._request] == number[self._before])
        firsts = np.flatnonzero(np.diff(number, prepend=-1))
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(number)], strict=True):
            low, high = np.searchsorted(self._request, [first, end]).tolist()
            again, within = int(self._hit[low:high].sum()), int(same[low:high].sum())
            found = None if tokens is None else TierTokens.total(item for item in tokens[first:end] if item is not None)
            sums = (None, None, None) if found is None else (sum(found), found.device, found.host)
            yield Window(float(number[first] * seconds), end - first, high - low, within, again - within, *sums)
