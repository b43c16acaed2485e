"""The requests of a pass that are still to be sent, and when: what every runner sends from."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator, Sequence

from kvbench.runners.base import Clock, ClosedLoop, FollowUp, Pace, Request, RequestSource


class SendQueue:
    """Gives out requests, each when its pace says so. Those that come after another join it when that one has ended.

    ``in_flight``: given out, and not ended. Times are of the run's clock, in seconds.
    """

    def __init__(self, source: RequestSource, pace: Pace, clock: Clock) -> None:
        self._source, self._pace, self._clock = source, pace, clock
        self._first = source.first
        self._next = 0
        self._later: list[tuple[float, int, Request]] = []
        """A heap: when due, in which order they came, and the request."""
        self._order = itertools.count()
        self._start = self._room_since = clock()
        self.in_flight = 0

    def __len__(self) -> int:
        """Requests that wait here: to be due, or for another to end."""
        return len(self._first) - self._next + len(self._later)

    @property
    def due_s(self) -> float:
        """When the next request is to be sent, which may be past; infinite where another has to end before."""
        now = self._clock()
        return min(self._first_due(now), self._later_due())

    def due(self) -> Iterator[tuple[Request, float]]:
        """Requests that are to be sent now, each with the time at which it was due."""
        while (found := self._pop(now := self._clock(), now)) is not None:
            self.in_flight += 1
            yield found

    def ended(self, request: Request, answer: Sequence[int] | None, end_s: float) -> Sequence[FollowUp]:
        """One that was given out has ended; takes in and returns those that come after it.

        ``answer``: as :meth:`~kvbench.runners.base.RequestSource.after` has it. ``end_s``: when its last token was there, from which pauses
        count.
        """
        if isinstance(self._pace, ClosedLoop) and self.in_flight == self._pace.concurrency:
            self._room_since = self._clock()
        self.in_flight -= 1
        found = self._source.after(request, answer)
        for later in found:
            heapq.heappush(self._later, (end_s + later.pause_s, next(self._order), later.request))
        return found

    def drain(self) -> Iterator[tuple[Request, float]]:
        """Take out all that wait, as they are not going to be sent; each with the time at which it was due, or is now."""
        self.in_flight, now = 0, self._clock()
        while (found := self._pop(now, float("inf"))) is not None:
            yield found

    def wait(self) -> None:
        """Sleep until the next request is due; for when nothing is in flight."""
        if self and (rest := self.due_s - self._clock()) > 0:
            time.sleep(rest)

    def _pop(self, now: float, until: float) -> tuple[Request, float] | None:
        """The one that is due first, at ``until`` at the latest; in a closed loop one that comes after another, if it is due."""
        first, later = self._first_due(now), self._later_due()
        if min(first, later) > until or not self:
            return None
        if later <= first:
            return heapq.heappop(self._later)[2], later
        self._next += 1
        return self._first[self._next - 1], first

    def _first_due(self, now: float) -> float:
        """Of those that come after no other: in a closed loop at once, or only when another has ended."""
        if self._next == len(self._first) or not self._has_room():
            return float("inf")
        return now if isinstance(self._pace, ClosedLoop) else self._start + self._pace.times_s[self._next]

    def _later_due(self) -> float:
        """Of those that come after another: when the pause is over; in a closed loop not before there was room for one more in flight."""
        if not self._later or not self._has_room():
            return float("inf")
        return max(self._later[0][0], self._room_since) if isinstance(self._pace, ClosedLoop) else self._later[0][0]

    def _has_room(self) -> bool:
        return not isinstance(self._pace, ClosedLoop) or self.in_flight < self._pace.concurrency
