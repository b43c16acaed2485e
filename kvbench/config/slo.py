"""Service level objectives, as ``--slo ttft=2000,tpot=50`` says them.

    slo     = limit { "," limit }
    limit   = ("ttft" | "tpot" | "e2el") [ "_" ("p50" | "p90" | "p95" | "p99") ] "=" milliseconds

A limit without a percentile is one that each request must meet; one with a percentile is met or missed by the requests of a pass together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EXAMPLE = "ttft=2000,tpot=50"
_LIMIT = re.compile(r"(?P<latency>ttft|tpot|e2el)(_p(?P<percentile>50|90|95|99))?=(?P<ms>\d{1,9}(\.\d{1,9})?)")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``ms`` milliseconds of a latency: of each request, or at a percentile of all."""

    latency: str
    ms: float
    percentile: int | None = None

    @property
    def name(self) -> str:
        """As it is written: ``ttft`` or ``ttft_p95``."""
        return self.latency if self.percentile is None else f"{self.latency}_p{self.percentile}"


@dataclass(frozen=True, slots=True)
class Slo:
    """An objective. ``text``: as it was written."""

    text: str
    limits: tuple[Limit, ...]


def parse_slo(text: str) -> Slo:
    """The objective that a text names.

    Raises:
        ValueError: a part is no limit, or names the same as another.
    """
    limits: list[Limit] = []
    for part in text.replace(" ", "").split(","):
        found = _LIMIT.fullmatch(part)
        if found is None or float(found["ms"]) <= 0:
            raise ValueError(f"{part!r} is no limit in ms: ttft, tpot or e2el, or one of these with _p50 to _p99, as in {EXAMPLE}")
        limits.append(Limit(found["latency"], float(found["ms"]), int(found["percentile"]) if found["percentile"] else None))
    names = [limit.name for limit in limits]
    if len(set(names)) < len(names):
        raise ValueError(f"{max(names, key=names.count)} is named twice")
    return Slo(text, tuple(limits))
