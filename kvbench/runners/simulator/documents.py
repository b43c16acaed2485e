"""The published measurement's own model: a cache of whole documents, sized in tokens, least recently used out first."""

from __future__ import annotations

from collections.abc import Hashable

from kvbench.runners.simulator.policies.registry import make_policy


class DocumentCache:
    """Room for ``capacity`` tokens of whole documents. One that is larger is never kept, and evicts nothing.

    LRU is part of the published model, so a profile of whole documents names no other policy.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._kept = make_policy("lru", capacity)
        self._tokens: dict[Hashable, int] = {}

    def hit(self, document: Hashable) -> bool:
        """Whether the document is here; uses it if so."""
        if document not in self._kept:
            return False
        self._kept.use([document])
        return True

    def put(self, document: Hashable, tokens: int) -> None:
        """Keep a document that is not here as the most recently used one; what is in the way goes."""
        if tokens > self.capacity:
            return
        while self.used + tokens > self.capacity:
            [gone] = self._kept.evict(1)
            self.used -= self._tokens.pop(gone)
        self._kept.use([document])
        self._tokens[document] = tokens
        self.used += tokens
