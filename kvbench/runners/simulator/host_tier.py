"""The host tier as the simulator sees it: which chunks it holds, what a request finds there, and what it leaves there."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.models.units import ceil_div
from kvbench.runners.profiles import HostRules
from kvbench.runners.simulator.policies.policy import Key
from kvbench.runners.simulator.policies.registry import make_policy


def chunks_to_hold(chunks: int, rules: HostRules) -> int:
    """The smallest capacity, in chunks, of a tier that keeps ``chunks`` of them and evicts none."""
    if rules.watermark == 1 or chunks == 0:
        return chunks
    capacity = int(chunks / rules.watermark)
    while chunks >= rules.watermark * capacity:  # the condition of eviction itself, so that rounding cannot tell otherwise
        capacity += 1
    return capacity


class ChunkTier:
    """Room for ``capacity`` chunks under a profile's rules; positions are tokens from the start of the prompt."""

    def __init__(self, capacity: int, chunk_tokens: int, rules: HostRules) -> None:
        self.capacity = capacity
        self.chunk_tokens = chunk_tokens
        self._rules = rules
        self._kept = make_policy(rules.policy, capacity)
        self.exact = True
        """Whether the hits so far are certain: not if a background job evicted, whose time nobody knows."""

    def __len__(self) -> int:
        return len(self._kept)

    def load(self, keys: Sequence[Key], start: int, limit: int) -> tuple[int, int]:
        """Look a prompt up and use what is found.

        ``keys``: of its full chunks. ``start``: where the device's hit ends. ``limit``: where a hit must end at the latest.

        Returns:
            Where the hit ends, at least ``start``, and where the chunks found end, whether they were needed or not.
        """
        from_start = self._rules.found_from_start
        if start >= limit and not from_start:
            return start, start
        first = 0 if from_start else start // self.chunk_tokens
        wanted = keys[first : ceil_div(limit, self.chunk_tokens)]
        run = self._kept.leading_run(wanted)
        if not run:
            return start, 0
        self._kept.use(wanted[:run][::-1] if from_start else wanted[:run])
        end = (first + run) * self.chunk_tokens
        return max(start, min(end, limit)), end

    def store(self, keys: Sequence[Key]) -> None:
        """Write the chunks that a request leaves, head first; what is here already is used instead of written."""
        if not keys:
            return
        if self._rules.watermark < 1:
            self._store_what_fits(keys)
        elif self.capacity:
            self._kept.store(keys, self.capacity)

    def _store_what_fits(self, keys: Sequence[Key]) -> None:
        """Add new chunks while there is room, a request's tail before its head in the order of eviction; then the background job."""
        new = [key for key in keys if key not in self._kept]
        room = self.capacity - len(self._kept)
        self._kept.use(new[:room][::-1])
        self.exact &= len(new) <= room and len(self._kept) < self._rules.watermark * self.capacity
        while len(self._kept) and len(self._kept) >= self._rules.watermark * self.capacity:
            self._kept.evict(max(1, int(len(self._kept) * self._rules.evicted_share)))
