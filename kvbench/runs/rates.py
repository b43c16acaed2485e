"""From tokens by tier to time: TTFT ≈ overhead + computed ÷ prefill rate + loaded ÷ restore rate.

Linear in both, so an estimate: attention's own cost grows with the square of the length, and a computed tail behind a long hit costs
more per token than a head.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kvbench.errors import UsageError

TierTokens = tuple[int, int, int]
"""Prompt tokens of a request that were found on the device, loaded from the host, computed."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates in tokens/s, overhead in ms (what a request takes beside). ``None``: not known, and so is a TTFT that needs it."""

    prefill: float | None
    restore: float | None
    overhead_ms: float = 0.0

    def ttft_ms(self, tokens: TierTokens) -> float | None:
        """Predicted time to first token of a request alone on the machine, in ms."""
        _, host, computed = tokens
        parts = [(computed, self.prefill), (host, self.restore)]
        if any(count and not rate for count, rate in parts):
            return None
        return self.overhead_ms + sum(count / rate * 1e3 for count, rate in parts if count and rate)


@dataclass(frozen=True, slots=True)
class FittedRates:
    """Rates and how well they say what they were fitted to: relative errors of single TTFTs, 0.1 for a tenth."""

    rates: Rates
    requests: int
    median_error: float
    worst_error: float


def fit_rates(measured: Iterable[tuple[TierTokens, float]]) -> FittedRates:
    """The rates that fit measured requests best: least squares of the relative error, no part below 0.

    A rate is ``None`` if no request tells it: nothing was computed, or loaded, or it took no measurable time.

    Args:
        measured: tokens by tier and TTFT in ms of requests that ran alone.

    Raises:
        UsageError: there is none with a TTFT above 0.
    """
    from scipy.optimize import nnls  # late: it takes longer to import than a plan takes, which only uses rates

    rows = [(tokens, ttft) for tokens, ttft in measured if ttft > 0]
    if not rows:
        raise UsageError("rates cannot be fitted: no request with known tokens by tier and a TTFT above 0")
    ttft = np.array([time for _, time in rows])
    parts = np.array([(1.0, computed, host) for (_, host, computed), _ in rows])
    overhead, per_computed, per_loaded = nnls(parts / ttft[:, None], np.ones(len(rows)))[0].tolist()
    rates = Rates(_rate(per_computed), _rate(per_loaded), overhead)
    errors = np.abs(parts @ np.array([overhead, per_computed, per_loaded]) / ttft - 1)
    return FittedRates(rates, len(rows), float(np.median(errors)), float(errors.max()))


def _rate(ms_per_token: float) -> float | None:
    return 1e3 / ms_per_token if ms_per_token > 0 else None
