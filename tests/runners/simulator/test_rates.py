"""Predicted times from rates, and rates from measured times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.runners.simulator.simulator import TierTokens
from kvbench.runs.rates import Rates, fit_rates

ROOT = Path(__file__).parents[3]

MEASURED = [TierTokens(0, 0, 5000), TierTokens(0, 4864, 161), TierTokens(5024, 0, 1), TierTokens(1408, 3456, 161), TierTokens(0, 0, 300)]


def test_ttft_is_overhead_and_each_tiers_time() -> None:
    rates = Rates(prefill=10_000, restore=1_000_000, overhead_ms=30)
    assert rates.ttft_ms(TierTokens(5000, 2000, 100)) == pytest.approx(30 + 2 + 10)


def test_what_needs_an_unknown_rate_is_unknown() -> None:
    rates = Rates(prefill=10_000, restore=None)
    assert rates.ttft_ms(TierTokens(0, 256, 100)) is None
    assert rates.ttft_ms(TierTokens(256, 0, 100)) == 10
    assert Rates(None, 1000).ttft_ms(TierTokens(0, 0, 1)) is None


def test_fitted_rates_are_those_that_made_the_times() -> None:
    true = Rates(prefill=8_000, restore=500_000, overhead_ms=12)
    fitted = fit_rates([(tokens, true.ttft_ms(tokens) or 0.0) for tokens in MEASURED])
    assert fitted.rates.prefill == pytest.approx(8_000)
    assert fitted.rates.restore == pytest.approx(500_000)
    assert fitted.rates.overhead_ms == pytest.approx(12)
    assert fitted.requests == 5
    assert max(fitted.median_error, fitted.worst_error) < 1e-9


def test_the_error_of_a_fit_is_relative() -> None:
    fitted = fit_rates([(TierTokens(0, 0, 100), 9.0), (TierTokens(0, 0, 100), 11.0)])
    low, high = 9.9 / 9 - 1, 1 - 9.9 / 11  # the least squares of relative errors
    predicted = fitted.rates.ttft_ms(TierTokens(0, 0, 100)) or 0.0
    assert predicted == pytest.approx((1 / 9 + 1 / 11) / (1 / 81 + 1 / 121))
    assert fitted.worst_error == pytest.approx(max(abs(predicted / 9 - 1), abs(predicted / 11 - 1)))
    assert low - 0.02 < fitted.median_error < high + 0.02


def test_a_rate_that_nothing_tells_is_unknown() -> None:
    fitted = fit_rates([(TierTokens(0, 0, 100), 10.0), (TierTokens(0, 0, 200), 20.0)])
    assert fitted.rates.restore is None


def test_nothing_to_fit() -> None:
    with pytest.raises(UsageError, match="no request"):
        fit_rates([])


def test_the_six_published_medians_from_three_published_numbers() -> None:
    """560 ms to compute a document, 8.5 ms to load 4,864 tokens, 30 ms for a device hit; the report has what the script prints."""
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks/published_measurement.py")], capture_output=True, text=True, check=True)
    table, line = done.stdout.split("\n\n")
    assert table in (ROOT / "reports/published-measurement-prediction.md").read_text(encoding="utf-8")
    found = json.loads(line)
    assert [round(row["p50"]["error"], 2) for row in found["results"]] == [0.03, 0.03, 0.02, -0.01, 0.16, 0.17]
    double = [row["p50"]["predicted"] - row["p50"]["measured"] for row in found["results"][4:]]
    assert double == pytest.approx([8, 8], abs=0.15)  # the forward pass that is counted twice
