"""The host tier's bookkeeping (source 001): which chunks are kept beside the device, and which one goes when it is full.

Least recently used: recency is the last store or load of a chunk. A device hit touches nothing here.
"""

from __future__ import annotations

from collections import OrderedDict


class HostTier:
    """Room for ``capacity`` chunks of ``chunk_tokens`` tokens, in slots numbered from 0; holds no KV itself."""

    def __init__(self, capacity: int, chunk_tokens: int) -> None:
        self.capacity = capacity
        self.chunk_tokens = chunk_tokens
        self.evicted = 0
        self._slots: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, key: bytes) -> int | None:
        """The slot that holds this chunk, ``None`` if none does; changes nothing."""
        return self._slots.get(key)

    def touch(self, key: bytes) -> None:
        """Make a kept chunk the most recently used one."""
        self._slots.move_to_end(key)

    def put(self, key: bytes) -> int | None:
        """Give the chunk a slot as the most recently used one, in place of the least recently used if full.

        Returns the slot to write it to; ``None`` if nothing is to be written: the chunk is here already (it is touched), or there is no
        room for any.
        """
        if key in self._slots:
            self.touch(key)
            return None
        if self.capacity == 0:
            return None
        if len(self._slots) < self.capacity:
            slot = len(self._slots)
        else:
            _, slot = self._slots.popitem(last=False)
            self.evicted += 1
        self._slots[key] = slot
        return slot
