"""What is kept of one repeat of a pass: the samples of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of a pass. TTFT in ms over its ``n`` requests that gave a token; tokens and preemptions are sums. ``None``: unknown.

    ``run``: which of several runs it is of. ``metrics``: those that were added (:mod:`kvbench.metrics`), by name.
    """

    repeat: int
    n: int
    failed: int
    p50: float | None
    mean: float | None
    min: float | None
    max: float | None
    prompt: int | None
    device: int | None
    host: int | None
    computed: int | None
    preemptions: int | None
    run: int = 0
    metrics: Mapping[str, float | None] | None = None

    def share(self, tier: str) -> float | None:
        """Tokens of a tier as a share of the prompt; ``None``: one of both is unknown, or there is no prompt."""
        tokens: int | None = getattr(self, tier)
        return tokens / self.prompt if tokens is not None and self.prompt else None
