"""Least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from kvbench.runners.simulator.policies.policy import Key, Policy, PolicyEntry


class LRU(Policy):
    """Costs are linear in the keys named."""

    def __init__(self) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()
        """The least recently used first."""
        self._view = dict.keys(self._keys)  # an OrderedDict's own view goes through Python's slow path for isdisjoint

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def leading_run(self, keys: Sequence[Key]) -> int:
        """How many of the keys are held before the first one that is not; changes nothing."""
        held = self._keys
        run = 0
        for key in keys:
            if key not in held:
                break
            run += 1
        return run

    def is_disjoint(self, keys: Iterable[Key]) -> bool:
        """Whether none of the keys is held; changes nothing."""
        return self._view.isdisjoint(keys)

    def use(self, keys: Sequence[Key]) -> None:
        """Make these the most recently used keys, the last one most."""
        held, move_to_end = self._keys, self._keys.move_to_end
        for key in keys:
            if key in held:
                move_to_end(key)
            else:
                held[key] = None

    def pin(self, keys: Sequence[Key]) -> None:
        """Make these the most recently used keys: they would go only when no other is left."""
        self.use(keys)

    def evict(self, count: int) -> list[Key]:
        """Remove the ``count`` least recently used keys, the oldest first."""
        held = self._keys
        oldest = list(islice(held, count))
        for key in oldest:  # faster than popitem, which makes a pair for each key
            del held[key]
        return oldest

    def admit(self, keys: Sequence[Key], capacity: int) -> None:
        """Use the keys, then evict what is too much: none of them goes while another is left."""
        self.use(keys)
        if len(self._keys) > capacity:
            self.evict(len(self._keys) - capacity)

    def store(self, keys: Sequence[Key], capacity: int) -> None:
        """Use keys one after the other; each that is not held first evicts the least recently used one, if there is no room."""
        if len(keys) <= capacity and self._view.isdisjoint(keys):
            self.admit(keys, capacity)
            return
        held = self._keys
        for key in keys:  # one that is held could be evicted before its turn
            if key in held:
                held.move_to_end(key)
                continue
            if len(held) >= capacity:
                held.popitem(last=False)
            held[key] = None


POLICY = PolicyEntry("lru", lambda capacity, future: LRU(), has_inclusion=True)
