"""Prompt tokens by the tier they came from, and hit rates."""

from __future__ import annotations

from typing import Literal

from kvbench.drawing.layout import grouped
from kvbench.metrics.metric import SHARE, ComparedBy, Metric, PassRequests, per_cent, total
from kvbench.metrics.repeat import Repeat


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


def _hit_rate(tier: str, where: str, place: int) -> Metric:
    def derive(repeat: Repeat, over: Repeat | None) -> float | None:
        return repeat.share(tier)

    return Metric(
        name=f"{tier}_hit_rate", unit=SHARE, formula=f"prompt tokens from the {where} ÷ prompt tokens, 0 to 1", header=f"{tier} hits",
        worse="lower", withheld="any request's tokens are unknown", show=per_cent, column=None,
        order=40 + place, needs_tier=tier == "host", row=f"{tier}_hit_rate", derive=derive,
    )  # fmt: skip


METRICS = (
    _tokens("device", 0, "prompt tokens found in the device pool", "lower", ("hits lost", "hits gained"), "cached_tokens_device"),
    _tokens("host", 1, "prompt tokens loaded from the host tier", "lower", ("hits lost", "hits gained"), "cached_tokens_host"),
    _tokens("computed", 2, "prompt tokens computed by prefill", "higher", ("more computed", "less computed"), "computed_tokens"),
    _hit_rate("device", "device pool", 0),
    _hit_rate("host", "host tier", 1),
)
