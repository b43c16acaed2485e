"""End-to-end latency."""

from __future__ import annotations

from kvbench.metrics.percentiles import percentiles

METRICS = percentiles("e2el", "last token − sent of each request", "no request has a last token", 78, 50)
