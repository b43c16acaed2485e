"""Random draws that are the same on every machine, Python and library version: bits of SHAKE-256, named by their purpose.

The streams of ``random`` and ``numpy.random`` may change between releases; a benchmark's token ids must not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from struct import unpack


class Draws:
    """A stream of uniform draws for one purpose of one seed; other purposes draw from streams of their own."""

    def __init__(self, seed: int, *purpose: str | int) -> None:
        self._name = "/".join(str(part) for part in (seed, *purpose))
        self._numbers = self._stream()

    def integers(self, count: int, low: int, high: int) -> list[int]:
        """``count`` integers from ``low`` to ``high - 1`` (the bias of the remainder is below range ÷ 2^64)."""
        return [low + number % (high - low) for number in islice(self._numbers, count)]

    def uniform(self) -> float:
        """A float in [0, 1) with 53 random bits."""
        return (next(self._numbers) >> 11) / 2**53

    def shuffled(self, count: int) -> list[int]:
        """A uniformly drawn order of ``0 .. count - 1``."""
        keys = [next(self._numbers) for _ in range(count)]
        return sorted(range(count), key=lambda place: (keys[place], place))

    def _stream(self) -> Iterator[int]:
        block = 0
        while True:
            data = hashlib.shake_256(f"{self._name}#{block}".encode()).digest(8 * 1024)
            yield from unpack("<1024Q", data)
            block += 1
