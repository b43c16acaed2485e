"""The host tier's bookkeeping: which chunks are kept beside the device, and which one goes when it is full.

An eviction policy (``policies/``) says which. A chunk is used when it is stored or loaded; a device hit touches nothing here. The host tier
is the CPU tier of the published measurement.
"""

from __future__ import annotations

from kvbench.runners.engine.kv.policies.registry import make_policy


class HostTier:
    """Room for ``capacity`` chunks of ``chunk_tokens`` tokens, in slots numbered from 0; holds no KV itself."""

    def __init__(self, capacity: int, chunk_tokens: int, policy: str = "lru") -> None:
        """Empty. ``policy``: which chunk goes first, by name; raises ``UsageError`` if there is no such policy."""
        self.capacity = capacity
        self.chunk_tokens = chunk_tokens
        self.evicted = 0
        self._kept = make_policy(policy, capacity)
        self._slots, self._hold = self._kept.places, self._kept.hold
        self.touch = self._kept.use
        """Use a chunk that is kept, by its key; changes the order of eviction only."""

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, key: bytes) -> int | None:
        """The slot that holds this chunk, ``None`` if none does; changes nothing."""
        return self._slots.get(key)

    def put(self, key: bytes) -> int | None:
        """Use a chunk, and give it a slot if it has none, instead of another chunk if the tier is full.

        Returns the slot to write it to; ``None`` if nothing is to be written: the chunk is here already, or there is no room for any.
        """
        slots = self._slots
        if key in slots:
            self._kept.use(key)
            return None
        if len(slots) < self.capacity:
            slot = len(slots)
            self._hold(key, slot)
            return slot
        if not slots:
            return None
        self.evicted += 1
        return self._kept.replace(key)
