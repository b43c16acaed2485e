"""Least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict

from kvbench.runners.engine.kv.policies.policy import EnginePolicy, EnginePolicyEntry


class LRUOrder(EnginePolicy):
    """An :class:`~kvbench.runners.engine.kv.policies.policy.EnginePolicy`."""

    def __init__(self) -> None:
        self._order: OrderedDict[bytes, None] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._order)

    def use(self, key: bytes) -> None:
        """Make this the most recently used key."""
        order = self._order
        if key in order:
            order.move_to_end(key)
        else:
            order[key] = None

    def pin(self, key: bytes) -> None:
        """Take the key out of the order."""
        del self._order[key]

    def evict(self) -> bytes:
        """Remove the least recently used key, and return it."""
        return self._order.popitem(last=False)[0]


POLICY = EnginePolicyEntry("lru", lambda capacity: LRUOrder())
