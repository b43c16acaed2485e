"""The contract of an eviction policy of the engine: of the content that may go, which goes first.

One contract for both tiers: which free block that can be found is reused next, which chunk makes room for a new one. Both name content by
its key, so a policy can know a key again that it has evicted. What no policy decides is the pool's own: blocks that cannot be found are
reused before all others, and a request's tail is released before its head.

The simulator has a contract and policies of its own (``runners/simulator/policies``): shared code would agree with itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import cached_property


class EnginePolicy(ABC):
    """The keys that may be evicted, and their order. It decides by the order of the calls alone, and no call takes time with the size."""

    @abstractmethod
    def __len__(self) -> int:
        """Keys that may be evicted; changes nothing."""

    @abstractmethod
    def use(self, key: bytes) -> None:
        """A request used this key: it may be evicted from now on. It is new, was pinned, or may be evicted already."""

    @abstractmethod
    def pin(self, key: bytes) -> None:
        """A request holds this key, which could be evicted so far: it stays until it is used again."""

    @abstractmethod
    def evict(self) -> bytes:
        """Remove the key that goes first, and return it. There is one that may be evicted."""

    # The rest follows from the above, and is what the pool and the tier call. A policy may do it faster, with the same result.

    @cached_property
    def places(self) -> MutableMapping[bytes, int]:
        """Where each key is that may be evicted: a block or a slot, as :meth:`hold` was told. Of a pinned key it means nothing."""
        return {}

    def hold(self, key: bytes, place: int) -> None:
        """Use a key that could not be evicted so far, and note where it is."""
        self.places[key] = place
        self.use(key)

    def take(self, count: int) -> list[int]:
        """Evict ``count`` keys, and return their places in that order. So many may be evicted."""
        return [self.places.pop(self.evict()) for _ in range(count)]

    def replace(self, key: bytes) -> int:
        """Evict a key, and hold this one, which is new, in its place; returns that."""
        [place] = self.take(1)
        self.hold(key, place)
        return place


@dataclass(frozen=True, slots=True)
class EnginePolicyEntry:
    """What a file of this room has as ``POLICY``."""

    name: str
    make: Callable[[int], EnginePolicy]
    """Makes one that holds no key. Argument: the most keys that the tier can hold, in blocks or chunks."""
