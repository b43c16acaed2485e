"""Tokens by tier in two runs: whether a hit was lost.

Requests that run one at a time hit exactly the same, so their tokens are compared request by request, whatever the clock says. Where they
overlap, a tier's share of the prompt is compared over the repeats.
"""

from __future__ import annotations

import numpy as np

from kvbench.analysis.noise import ByRun, flat
from kvbench.comparison.baseline import TIERS, Tokens
from kvbench.comparison.metrics import PassMetrics
from kvbench.comparison.verdict import ChangeVerdict, judge_exact
from kvbench.metrics.metric import Metric

_CACHED = slice(0, 2)
"""The columns of a hit: device and host."""


Compared = tuple[tuple[ByRun, ByRun], ChangeVerdict | None, str | None]
"""How one tier of a pass is compared: its samples, the exact verdict (``None``: the samples decide), and more of it."""


def compare_tier(metric: Metric, base: PassMetrics, new: PassMetrics, exact: bool) -> Compared:
    """Compare the tokens of one tier; ``exact``: requests ran one at a time in both runs."""
    samples = base.by_run(metric), new.by_run(metric)
    rows = base.cell.requests, new.cell.requests
    if any(side.value(metric) is None for side in (base, new)):
        return samples, ChangeVerdict.UNKNOWN, None
    if exact and rows[0] is not None and rows[1] is not None and len(rows[0]) == len(rows[1]):
        return samples, *_by_request(TIERS.index(metric.name), rows[0], rows[1])
    if exact and all(len(set(flat(side))) == 1 for side in samples):
        return samples, judge_exact(samples[0][0][0], samples[1][0][0], metric.more_is_worse), None
    return (base.shares(metric.name), new.shares(metric.name)), None, None


def _by_request(tier: int, base: Tokens, new: Tokens) -> tuple[ChangeVerdict, str | None]:
    """One request that lost a hit is a regression, though another gained one.

    A device hit that became a host hit is lost on the device; on the host it is tokens that moved.
    """
    own = new[:, tier] - base[:, tier]
    cached = new[:, _CACHED].sum(axis=1) - base[:, _CACHED].sum(axis=1)
    gain = {"device": own, "host": np.where(own == 0, 0, cached), "computed": -own}[TIERS[tier]]
    lost = np.flatnonzero(gain < 0)
    if lost.size:
        place = int(lost[0])
        tokens = f"{base[place, tier]:,} to {new[place, tier]:,}"
        return ChangeVerdict.WORSE, f"{lost.size} of {len(base)} requests, first number {place + 1} in the pass: {tokens}"
    if (gain > 0).any():
        return ChangeVerdict.BETTER, None
    return (ChangeVerdict.MOVED if own.any() else ChangeVerdict.SAME), None
