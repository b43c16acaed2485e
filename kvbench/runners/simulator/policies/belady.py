"""Belady's optimum: whatever is next used last goes first. It knows the future, so it is a bound and no policy that could be built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf

from kvbench.runners.simulator.policies.policy import Key


class Belady:
    """An :class:`~kvbench.runners.simulator.policies.policy.Policy` policy for requests that are known beforehand.

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
        self._heap: list[tuple[float, int, Key]] = []
        self._pushed = 0
        self._in_use: frozenset[Key] = frozenset()

    def __len__(self) -> int:
        return len(self._next)

    def __contains__(self, key: Key) -> bool:
        return key in self._next

    def leading_run(self, keys: Sequence[Key]) -> int:
        """How many of the keys are held before the first one that is not."""
        return next((run for run, key in enumerate(keys) if key not in self._next), len(keys))

    def is_disjoint(self, keys: Iterable[Key]) -> bool:
        """Whether none of the keys is held."""
        return self._next.keys().isdisjoint(keys)

    def use(self, keys: Sequence[Key]) -> None:
        """The next request has come; its keys are held until the one after it comes.

        Raises:
            IndexError: it is one more than were announced.
        """
        self._push(self._in_use & self._next.keys())
        self._in_use = frozenset(keys)
        now = self._ends.pop()
        for key in keys:
            uses = self._uses.get(key, [])
            while uses and uses[-1] < now:
                uses.pop()
            self._next[key] = uses[-1] if uses else inf

    def evict(self, count: int) -> list[Key]:
        """Remove the ``count`` keys that are next used last."""
        evicted: list[Key] = []
        while len(evicted) < count:
            if not self._heap:  # only what is in use is left
                self._push(self._in_use & self._next.keys())
                self._in_use = frozenset()
            next_use, _, key = heappop(self._heap)
            if self._next.get(key) == -next_use:  # else the key was used since, or evicted
                del self._next[key]
                evicted.append(key)
        return evicted

    def _push(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._pushed += 1  # so that keys themselves are never compared
            heappush(self._heap, (-self._next[key], self._pushed, key))
