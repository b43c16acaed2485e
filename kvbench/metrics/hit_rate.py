"""Hit rates of the tiers."""

from __future__ import annotations

from kvbench.drawing.numbers import per_cent
from kvbench.metrics.metric import SHARE, Metric
from kvbench.metrics.repeat import Repeat


def _hit_rate(tier: str, where: str, place: int) -> Metric:
    def derive(repeat: Repeat, over: Repeat | None) -> float | None:
        return repeat.share(tier)

    return Metric(
        name=f"{tier}_hit_rate", unit=SHARE, formula=f"prompt tokens from the {where} ÷ prompt tokens, 0 to 1", header=f"{tier} hits",
        worse="lower", withheld="any request's tokens are unknown", show=per_cent, column=None,
        order=40 + place, needs_tier=tier == "host", row=f"{tier}_hit_rate", derive=derive,
    )  # fmt: skip


METRICS = (_hit_rate("device", "device pool", 0), _hit_rate("host", "host tier", 1))
