"""The prediction of a pass: what :class:`~kvbench.runs.records.PassRecord` carries beside the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvbench.runners.base import Request
from kvbench.runners.profiles import Profile
from kvbench.runners.simulator.simulator import Capacity, TierTokens, make_simulator
from kvbench.runs.rates import Rates


@dataclass(frozen=True, slots=True)
class Prediction:
    """One pass. ``tokens`` and ``ttft_ms`` are by request, in the order of sending; times are ``None`` without the rates they need.

    Tokens are exact for requests sent one at a time to an engine of this profile, unless ``exact`` is false; for any others they are an
    estimate.
    """

    profile: str
    tokens: tuple[TierTokens, ...]
    ttft_ms: tuple[float | None, ...]
    rates: Rates | None
    exact: bool = True

    def to_json(self) -> dict[str, Any]:
        """Sums by tier, then device, host and computed tokens of each request, then its predicted TTFT in ms."""
        device, host, computed = (sum(part) for part in zip(*self.tokens, strict=True)) if self.tokens else (0, 0, 0)
        return {
            "profile": self.profile,
            "device": device,
            "host": host,
            "computed": computed,
            "requests": [list(tokens) for tokens in self.tokens],
            "ttft_ms": list(self.ttft_ms),
            "exact": self.exact,
            "rates": None if self.rates is None else asdict(self.rates),
        }


class Predictor:
    """Predicts the passes of one arm and repeat, one after the other, from a cold start as its runner's."""

    def __init__(self, profile: Profile, capacity: Capacity, rates: Rates | None = None) -> None:
        """Raises ``UsageError`` if the sizes do not go together (:func:`kvbench.runners.simulator.simulator.make_simulator`)."""
        self._profile = profile
        self._rates = rates
        self._simulator = make_simulator(profile, capacity)

    def predict(self, requests: Sequence[Request]) -> Prediction:
        """The next pass; changes what the simulated tiers hold, which is what the pass after it meets.

        Raises:
            UsageError: a request does not fit the pool.
        """
        read = self._simulator.read
        tokens = tuple(read(request.prompt, request.output_tokens, request.key.doc_id) for request in requests)
        times = tuple(None if self._rates is None else self._rates.ttft_ms(part) for part in tokens)
        return Prediction(self._profile.name, tokens, times, self._rates, self._simulator.exact)
