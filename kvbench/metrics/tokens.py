"""Prompt tokens by the tier they came from."""

from __future__ import annotations

from typing import Literal

from kvbench.drawing.layout import grouped
from kvbench.metrics.metric import ComparedBy, Metric, PassRequests, total


def _tokens(tier: str, place: int, formula: str, worse: Literal["higher", "lower"], words: tuple[str, str], counted: str) -> Metric:
    def measure(one: PassRequests) -> float | None:
        """Where a request's are unknown: what the runner counted for the whole pass."""
        known = total(one.answered[tier])
        return one.line.get(counted) if known is None else known

    return Metric(
        name=tier, unit="tokens", formula=formula, header=tier, worse=worse, measure=measure, withheld="any request's are unknown",
        compared=ComparedBy.TOKENS, words=words, moved="other tier", show=grouped, column=5 + place, order=20 + place,
        needs_tier=tier == "host", row=tier, repeat=tier,
    )  # fmt: skip


METRICS = (
    _tokens("device", 0, "prompt tokens found in the device pool", "lower", ("hits lost", "hits gained"), "cached_tokens_device"),
    _tokens("host", 1, "prompt tokens loaded from the host tier", "lower", ("hits lost", "hits gained"), "cached_tokens_host"),
    _tokens("computed", 2, "prompt tokens computed by prefill", "higher", ("more computed", "less computed"), "computed_tokens"),
)
