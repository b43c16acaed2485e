"""Belady's optimum: whatever is next used last goes first. It knows the future, so it is a bound and no policy that could be built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf

from kvbench.runners.simulator.policies.policy import Key, Policy, PolicyEntry


class Belady(Policy):
    """For requests that are known beforehand: each call of :meth:`use` is one of them.

    No policy under which a running request's blocks stay in the pool hits more. The next use is an access, not a request: of what the
    same request uses next the tail goes before the head, without which the tail is of no use.
    """

    def __init__(self, requests: Iterable[Sequence[Key]]) -> None:
        """``requests``: the keys of each call of :meth:`use` to come, head first, as far as there is a future."""
        self._uses: dict[Key, list[int]] = {}
        self._ends: list[int] = []
        place = 0
        for keys in requests:
            for key in keys:
                self._uses.setdefault(key, []).append(place)
                place += 1
            self._ends.append(place)
        for uses in self._uses.values():
            uses.reverse()  # the next one last
        self._ends.reverse()
        self._next: dict[Key, float] = {}
        """Of each held key, the place of its next use; −1: it is pinned."""
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._next)

    def __contains__(self, key: Key) -> bool:
        return key in self._next

    def leading_run(self, keys: Sequence[Key]) -> int:
        """How many of the keys are held before the first one that is not; changes nothing."""
        return next((run for run, key in enumerate(keys) if key not in self._next), len(keys))

    def use(self, keys: Sequence[Key]) -> None:
        """The next request has come: note when each of its keys is used next; ``IndexError``: it is one more than were announced."""
        now, held, heap, uses_of = self._ends.pop(), self._next, self._heap, self._uses.get
        for number, key in enumerate(keys, self._pushed):  # numbers, so that keys themselves are never compared
            uses = uses_of(key, [])
            while uses and uses[-1] < now:
                uses.pop()
            held[key] = next_use = uses[-1] if uses else inf
            heappush(heap, (-next_use, number, key))
        self._pushed += len(keys)

    def pin(self, keys: Sequence[Key]) -> None:
        """These held keys stay until the next :meth:`use`, which names them again."""
        self._next.update(dict.fromkeys(keys, -1))

    def evict(self, count: int) -> list[Key]:
        """Remove the ``count`` keys that are next used last."""
        evicted: list[Key] = []
        while len(evicted) < count:
            next_use, _, key = heappop(self._heap)
            if self._next.get(key) == -next_use:  # else the key was used or pinned since, or evicted
                del self._next[key]
                evicted.append(key)
        return evicted


# Where several keys are never used again, which of them a cache keeps is left to chance: no inclusion.
POLICY = PolicyEntry("belady", lambda capacity, future: Belady(future), needs_future=True)
