"""Source 001's own model: a cache of whole documents, sized in tokens, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class DocumentCache:
    """Room for ``capacity`` tokens of whole documents. One that is larger is never kept, and evicts nothing."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._tokens: OrderedDict[Hashable, int] = OrderedDict()

    def hit(self, document: Hashable) -> bool:
        """Whether the document is here; uses it if so."""
        if document not in self._tokens:
            return False
        self._tokens.move_to_end(document)
        return True

    def put(self, document: Hashable, tokens: int) -> None:
        """Keep the document as the most recently used one; what is in the way goes."""
        self.used -= self._tokens.pop(document, 0)
        if tokens > self.capacity:
            return
        self._tokens[document] = tokens
        self.used += tokens
        while self.used > self.capacity:
            self.used -= self._tokens.popitem(last=False)[1]
