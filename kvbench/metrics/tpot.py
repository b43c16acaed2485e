"""Time per output token after the first."""

from __future__ import annotations

from kvbench.metrics.percentiles import percentiles

METRICS = percentiles("tpot", "(E2EL − TTFT) ÷ (output tokens − 1) of each request", "no request gave two tokens", 70, 30)
