"""The requests of a pass that are still to be sent, and when: for runners that send from the thread that also does the work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from kvbench.runners.base import Clock, ClosedLoop, Pace, Request


class SendQueue:
    """Gives out requests in order, each when its pace says so."""

    def __init__(self, requests: Sequence[Request], pace: Pace, clock: Clock) -> None:
        self._requests, self._pace, self._clock = requests, pace, clock
        self._next = 0
        self._start = clock()

    def __bool__(self) -> bool:
        """Whether any request is left."""
        return self._next < len(self._requests)

    def due(self, in_flight: int) -> Iterator[tuple[Request, float]]:
        """Requests that are to be sent now, each with the time it was due on the run's clock; ``in_flight`` others are on their way."""
        while self and (due := self._due(in_flight)) <= self._clock():
            yield self._requests[self._next], due
            self._next += 1
            in_flight += 1

    def wait(self) -> None:
        """Sleep until the next request of an open loop is due; for when nothing is in flight."""
        if self and (rest := self._due(0) - self._clock()) > 0:
            time.sleep(rest)

    def _due(self, in_flight: int) -> float:
        """When the next request is to be sent: in a closed loop at once, or only when another has ended."""
        if not isinstance(self._pace, ClosedLoop):
            return self._start + self._pace.times_s[self._next]
        return self._clock() if in_flight < self._pace.concurrency else float("inf")
