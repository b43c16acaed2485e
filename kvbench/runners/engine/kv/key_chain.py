"""Keys of KV content: a hash chain over full units of tokens, so that equal keys mean an equal whole prefix.

A key is SHA-256 over the parent's key and the unit's token ids; the first parent is the engine's salt, random for each engine. A key
without its parent, or one that can be computed by others, hands out other people's KV (pitfalls: mini-vllm; vllm#12621).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence


class KeyChain:
    """The keys of one growing token sequence, in units of ``unit`` tokens."""

    def __init__(self, unit: int, salt: bytes) -> None:
        self._unit = unit
        self._last = salt
        self.keys: list[bytes] = []

    def copy(self) -> KeyChain:
        """A chain that goes on by itself from here."""
        other = KeyChain(self._unit, self._last)
        other.keys = list(self.keys)
        return other

    def extend(self, tokens: Sequence[int]) -> None:
        """Add the keys of the units that ``tokens``, the whole sequence so far, has filled since the last call."""
        first, last = len(self.keys), len(tokens) // self._unit
        if first == last:
            return
        data = array("q", tokens[first * self._unit : last * self._unit]).tobytes()
        size = self._unit * 8
        for start in range(0, len(data), size):
            self._last = hashlib.sha256(self._last + data[start : start + size]).digest()
            self.keys.append(self._last)
