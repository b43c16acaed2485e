"""A device pool that gives runs, as a server without paging must: its attention wants a request's KV in one piece.

The article on paging tells of such servers. Placement is first fit: the free run with the lowest address that is long enough. Freed
blocks join the free runs beside them at once. What lies between two requests and is too short for the next one is free and unusable:
external fragmentation.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.runners.engine.kv.block_pool import BlockPool


class ContiguousPool(BlockPool):
    """A pool whose every :meth:`allocate` gives consecutive blocks.

    No block of it can be found again: a hit would lie in another request's run. Invariant: free runs do not touch.
    """

    def __init__(self, num_blocks: int, policy: str = "lru") -> None:
        """As :class:`BlockPool`; no block has a key, so no policy is asked."""
        super().__init__(num_blocks, policy)
        self._end_of, self._start_of = {0: num_blocks}, {num_blocks: 0}
        """Of the free runs: by the first block the one behind the last, and by that the first."""

    @property
    def room(self) -> int:
        """Length of the longest free run."""
        return max((end - start for start, end in self._end_of.items()), default=0)

    @property
    def free_runs(self) -> list[tuple[int, int]]:
        """First block of each free run, and the one behind its last, ascending."""
        return sorted(self._end_of.items())

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each block; freed ones join the free runs; ``ValueError``: a block has no reference left to drop."""
        super().release(blocks)
        for block in reversed(blocks):
            if self.is_free(block):
                self._join(block)

    def publish(self, block: int, key: bytes) -> None:
        """Nothing: no block becomes findable."""

    def _choose(self, count: int) -> list[int]:
        """The head of the first free run that is long enough."""
        if count == 0:
            return []
        start, end = next(run for run in self.free_runs if run[1] - run[0] >= count)
        blocks = list(range(start, start + count))
        for block in blocks:
            del self._blank[block]
        del self._end_of[start], self._start_of[end]
        if start + count < end:
            self._end_of[start + count], self._start_of[end] = end, start + count
        return blocks

    def _join(self, block: int) -> None:
        """Put a freed block into the free runs."""
        start, end = self._start_of.pop(block, block), self._end_of.pop(block + 1, block + 1)
        self._end_of[start], self._start_of[end] = end, start
