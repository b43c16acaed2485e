"""The prediction of a pass: what :class:`~kvbench.runs.records.PassRecord` carries beside the measurement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kvbench.runners.base import Clock, ClosedLoop, Pace, Request, RequestSource
from kvbench.runners.profiles import Profile
from kvbench.runners.send_queue import SendQueue
from kvbench.runners.simulator.simulator import UNKNOWN_OUTPUT, CacheSizes, TierTokens, make_simulator
from kvbench.runs.rates import Rates


@dataclass(frozen=True, slots=True)
class Prediction:
    """One pass. ``tokens``, ``ttft_ms``, ``requests`` and ``due_s`` are by request, in the order of sending; times to the first token are
    ``None`` without the rates they need. ``due_s`` is when each is sent, on the virtual clock.

    Tokens are exact for requests sent one at a time to an engine of this profile, unless ``exact`` is false; for any others they are an
    estimate.
    """

    profile: str
    tokens: tuple[TierTokens, ...]
    ttft_ms: tuple[float | None, ...]
    rates: Rates | None
    exact: bool
    requests: tuple[Request, ...]
    due_s: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Sums by tier; device, host and computed tokens, and the predicted TTFT in ms, of each request by its position in the pass."""
        order = sorted(range(len(self.requests)), key=lambda number: self.requests[number].key.position)
        return {
            "profile": self.profile,
            **TierTokens.total(self.tokens)._asdict(),
            "requests": [list(self.tokens[number]) for number in order],
            "ttft_ms": [self.ttft_ms[number] for number in order],
            "exact": self.exact,
            "rates": None if self.rates is None else asdict(self.rates),
        }


class Predictor:
    """Predicts the passes of one arm and repeat, one after the other, from a cold start as its runner's."""

    def __init__(self, profile: Profile, capacity: CacheSizes, rates: Rates | None = None) -> None:
        """Raises ``UsageError`` if the sizes do not go together (:func:`kvbench.runners.simulator.simulator.make_simulator`)."""
        self._profile = profile
        self._rates = rates
        self._simulator = make_simulator(profile, capacity)

    def predict(self, source: RequestSource, pace: Pace, start_s: float = 0.0) -> Prediction:
        """The next pass; changes what the simulated tiers hold, which is what the pass after it meets.

        In a closed loop requests go one at a time, in an open loop each at its own time. An answer is not known: a prompt that holds one
        has as many :data:`~kvbench.runners.simulator.simulator.UNKNOWN_OUTPUT` instead, so that equal prompts have equal answers. Output
        tokens take no time, nor does a first token without rates: where a pause may let another request go first, the order is an estimate.

        ``start_s``: of the pass, on the virtual clock. Raises ``UsageError``: a request does not fit the pool.
        """
        clock = VirtualClock(start_s)
        queue = SendQueue(source, ClosedLoop(1) if isinstance(pace, ClosedLoop) else pace, clock)
        read, times, requests, dues = list[TierTokens](), list[float | None](), list[Request](), list[float]()
        certain = True
        for request, due in _in_turn(queue, clock):
            tokens = self._simulator.read(request.prompt, request.output_tokens, request.key.doc_id)
            ttft = None if self._rates is None else self._rates.ttft_ms(tokens)
            read.append(tokens)
            times.append(ttft)
            requests.append(request)
            dues.append(due)
            end = due + (ttft or 0.0) / 1e3
            if isinstance(pace, ClosedLoop):
                clock.now = end
            later = queue.ended(request, [UNKNOWN_OUTPUT] * request.output_tokens, end)
            certain &= len(queue) < 2 or not any(follow.pause_s for follow in later)
        exact = self._simulator.exact and certain
        return Prediction(self._profile.name, tuple(read), tuple(times), self._rates, exact, tuple(requests), tuple(dues))


def in_order(source: RequestSource) -> Iterator[Request]:
    """All requests of a pass, one at a time, in the order in which :meth:`Predictor.predict` has them without rates."""
    clock = VirtualClock(0.0)
    queue = SendQueue(source, ClosedLoop(1), clock)
    for request, due in _in_turn(queue, clock):
        queue.ended(request, [UNKNOWN_OUTPUT] * request.output_tokens, due)
        yield request


def _in_turn(queue: SendQueue, clock: VirtualClock) -> Iterator[tuple[Request, float]]:
    """Every request with the time at which it is due, to which the clock is moved; each must have ended before the next is asked for."""
    while queue:
        clock.now = max(clock.now, queue.due_s)
        yield from queue.due()


class VirtualClock(Clock):
    """Stands still, but for those who move it."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """``now``."""
        return self.now
