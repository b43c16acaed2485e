"""The device pool's bookkeeping: who holds each physical block, and which free one is reused next.

Rules (from the article on paging; the order of reuse is vLLM's, ``v1/core/block_pool.py``):

- a block is free when no reference to it is left; a reference is an entry of a sequence's block table, or a transfer that still reads it
- a freed block keeps its content, and stays findable by its key, until it is reused
- blocks without a key (not full, so not findable) are reused first, the last freed one before the others; then those with a key, in the
  order of an eviction policy (``policies/``), to which a block is used when it is freed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvbench.runners.engine.kv.policies.registry import make_policy


class BlockPool:
    """``num_blocks`` physical blocks, numbered from 0, of which ``free_blocks`` are free; holds no KV itself.

    Invariants: free + referenced = total; a block is free exactly when its reference count is 0; a key names at most one block.
    """

    def __init__(self, num_blocks: int, policy: str = "lru") -> None:
        """Every block free and without a key. ``policy``: which free block with a key is reused first, by name.

        Raises:
            UsageError: there is no such policy.
        """
        self.num_blocks = num_blocks
        self.free_blocks = num_blocks
        self.references = [0] * num_blocks
        self.evicted = 0
        self.peak_used = 0
        self._blank: dict[int, None] = dict.fromkeys(reversed(range(num_blocks)))
        """Free blocks without a key; the last one is reused first."""
        self._findable = make_policy(policy, num_blocks)
        """Free blocks with a key, by that."""
        self._hold, self._pin = self._findable.hold, self._findable.pin
        self._key_of = [b""] * num_blocks
        """By block; empty: it has none."""
        self._block_of: dict[bytes, int] = {}

    @property
    def room(self) -> int:
        """The most blocks that one call of :meth:`allocate` could give."""
        return self.free_blocks

    @property
    def used_blocks(self) -> int:
        """Blocks with at least one reference."""
        return self.num_blocks - self.free_blocks

    def is_free(self, block: int) -> bool:
        """Whether nothing holds the block."""
        return self.references[block] == 0

    def find(self, key: bytes) -> int | None:
        """The block whose content has this key, held or free; changes nothing, its place in the order of reuse included."""
        return self._block_of.get(key)

    def find_run(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks of the leading keys, up to the first that :meth:`find` does not find."""
        find, blocks = self._block_of.get, list[int]()
        for key in keys:
            block = find(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def key_of(self, block: int) -> bytes | None:
        """The key under which the block can be found, ``None`` if it cannot."""
        return self._key_of[block] or None

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` free blocks with one reference each, and forget their keys.

        They are given in ascending order: which blocks are taken is the rule, which of them comes first is free, and ascending runs
        can be read as views and copied in one piece.

        Raises:
            ValueError: there is no :attr:`room` for ``count`` (the caller must ask first).
        """
        if count > self.room:
            raise ValueError(f"{count} blocks asked for, there is room for {self.room}")
        blocks = self._choose(count)
        self.free_blocks -= count
        references = self.references
        for block in blocks:
            references[block] = 1
        self.peak_used = max(self.peak_used, self.num_blocks - self.free_blocks)
        return blocks

    def _choose(self, count: int) -> list[int]:
        """Take blocks out of the free ones, ascending; none of them has a key afterwards."""
        blank, key_of = self._blank, self._key_of
        blocks = [blank.popitem()[0] for _ in range(min(count, len(blank)))]
        if len(blocks) < count:
            found = self._findable.take(count - len(blocks))
            for block in found:
                del self._block_of[key_of[block]]
                key_of[block] = b""
            self.evicted += len(found)
            blocks += found
        blocks.sort()
        return blocks

    def acquire(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block; a free one leaves the order of reuse and keeps its key."""
        references, key_of, pin = self.references, self._key_of, self._pin
        for block in blocks:
            if references[block] == 0:
                self.free_blocks -= 1
                key = key_of[block]
                if key:
                    pin(key)
                else:
                    del self._blank[block]
            references[block] += 1
        self.peak_used = max(self.peak_used, self.num_blocks - self.free_blocks)

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each block, the last block first, so that a sequence's tail is reused before its head.

        Raises:
            ValueError: a block has no reference left to drop.
        """
        references, key_of, hold = self.references, self._key_of, self._hold
        for block in reversed(blocks):
            left = references[block] - 1
            if left < 0:
                raise ValueError(f"block {block} is free already")
            references[block] = left
            if left == 0:
                self.free_blocks += 1
                key = key_of[block]
                if key:
                    hold(key, block)
                else:
                    self._blank[block] = None

    def publish(self, block: int, key: bytes) -> None:
        """Make a full block findable. The first block with a key keeps it; a later one with the same content stays without."""
        if key not in self._block_of and not self._key_of[block]:
            self._key_of[block] = key
            self._block_of[key] = block
