"""A link between device and host that is slower than the memory it stands for: ``--link-gbps``.

Where device and host are both RAM, a copy takes what a memory copy takes, and over a fast link what that link takes; this shows a slower
one. Modelled are the rate, for each direction by itself, and that a copy waits for those before it in its direction, and for earlier
copies of the same place in host memory. Latency, and the work of whoever drives the copy, are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from kvbench.runners.engine.kv.transfer import Copy, HostCopies, Ticket, Transfer


@dataclass(frozen=True, slots=True)
class ThrottledTicket:
    """Done when the copy itself is, and not before ``due_s`` on the clock."""

    inner: Ticket
    due_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def done(self) -> bool:
        """Whether the data would have arrived."""
        return self.inner.done() and self.clock() >= self.due_s

    def wait(self) -> None:
        """Block until it would have."""
        self.inner.wait()
        while (left := self.due_s - self.clock()) > 0:
            self.sleep(left)


class ThrottledTransfer:
    """A :class:`~kvbench.runners.engine.kv.transfer.Transfer` whose copies end no earlier than a link of so many bytes a second allows.

    The data itself is moved by ``inner``, at once and in order, so that what it holds to holds here: who waits for the ticket waits longer.
    """

    def __init__(
        self,
        inner: Transfer,
        bytes_per_s: float,
        block_bytes: int,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inner = inner
        self._seconds_per_block = block_bytes / bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_s = {"store": 0.0, "load": 0.0}
        """When each direction has ended what it was given."""
        self._settled_s: dict[Hashable, float] = {}
        """When the last copy from or to a place in host memory ends."""

    def store(self, copies: HostCopies) -> ThrottledTicket:
        """Begin to copy device blocks to host memory."""
        return self._begin("store", self._inner.store, copies)

    def load(self, copies: HostCopies) -> ThrottledTicket:
        """Begin to copy host memory to device blocks."""
        return self._begin("load", self._inner.load, copies)

    def _begin(self, direction: str, move: Callable[[HostCopies], Ticket], copies: HostCopies) -> ThrottledTicket:
        places = list(_places(copies))
        begin = max(self._clock(), self._free_s[direction], *(self._settled_s.get(place, 0.0) for place in places))
        due = begin + sum(len(copy.blocks) for copy in copies) * self._seconds_per_block
        self._free_s[direction] = due
        self._settled_s |= dict.fromkeys(places, due)
        return ThrottledTicket(move(copies), due, self._clock, self._sleep)


def _places(copies: HostCopies) -> Iterator[Hashable]:
    """What of host memory is copied from or to: slots of the host tier, places of the swap space."""
    for copy in copies:
        if isinstance(copy, Copy):
            yield "slot", copy.slot
        else:
            yield from copy.places
