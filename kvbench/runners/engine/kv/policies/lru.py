"""Least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from kvbench.runners.engine.kv.policies.policy import EnginePolicy, EnginePolicyEntry


class LRUOrder(EnginePolicy):
    """An :class:`~kvbench.runners.engine.kv.policies.policy.EnginePolicy` whose order and places are one mapping."""

    def __init__(self) -> None:
        self.places = self._order = OrderedDict[bytes, int]()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._order)

    def use(self, key: bytes) -> None:
        """Make this the most recently used key."""
        try:
            self._order.move_to_end(key)
        except KeyError:
            self._order[key] = -1  # nobody said where it is

    @property
    def hold(self) -> Callable[[bytes, int], object]:  # type: ignore[override]
        """Put the key behind all others; the mapping's own method, as a Python call for each block would cost more than the rest."""
        return self._order.setdefault

    @property
    def pin(self) -> Callable[[bytes], object]:  # type: ignore[override]
        """Take the key out of the order."""
        return self._order.pop

    def evict(self) -> bytes:
        """Remove the least recently used key, and return it."""
        return self._order.popitem(False)[0]

    def take(self, count: int) -> list[int]:
        """Evict the ``count`` least recently used keys, and return their places."""
        popitem = self._order.popitem
        return [popitem(False)[1] for _ in range(count)]

    def replace(self, key: bytes) -> int:
        """Evict the least recently used key, and give its place to this one."""
        order = self._order
        order[key] = place = order.popitem(False)[1]
        return place


POLICY = EnginePolicyEntry("lru", lambda capacity: LRUOrder())
