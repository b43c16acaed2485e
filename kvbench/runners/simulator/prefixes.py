"""Identities of prefixes: a number for each full unit of a token sequence, equal exactly where everything up to its end is equal.

Token by token, and not by a hash: the engine hashes, and the two must not err alike.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence


class Prefixes:
    """Numbers the units (blocks, chunks) of ``unit`` tokens that it is shown, from 0; keeps every distinct one, 8 bytes a token."""

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self._numbers: dict[tuple[int, bytes], int] = {}

    def of(self, tokens: Sequence[int]) -> list[int]:
        """The number of each full unit of ``tokens``, head first."""
        size = self.unit * 8
        data = array("q", tokens).tobytes()
        numbers, parent = self._numbers, -1
        found = []
        for start in range(0, len(data) - size + 1, size):
            parent = numbers.setdefault((parent, data[start : start + size]), len(numbers))
            found.append(parent)
        return found
