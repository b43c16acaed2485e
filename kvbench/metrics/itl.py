"""Inter-token latency."""

from __future__ import annotations

from kvbench.metrics.metric import ComparedBy
from kvbench.metrics.percentiles import percentiles

_FORMULA = "the gaps between the output tokens of a request, of all requests"

METRICS = percentiles("itl", _FORMULA, "the server did not count tokens by chunk", 74, 40, ComparedBy.LIMIT)
"""Compared by TPOT, which says the same of a request; by itself only where ``--fail-on`` names it."""
