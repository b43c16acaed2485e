"""The contract of an eviction policy of the engine: of the content that may go, which goes first.

One contract for both tiers. The device pool asks it which free block that can be found is reused next, the host tier which chunk makes
room for a new one. Both name content by its key, so a policy can know a key again that it has evicted. What no policy decides is the
pool's own: blocks that cannot be found are reused before all others, and a request's tail is released before its head.

The simulator has a contract and policies of its own (``runners/simulator/policies``): shared code would agree with itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class EnginePolicyEntry:
    """What a file of this room has as ``POLICY``."""

    name: str
    make: Callable[[int], EnginePolicy]
    """Makes one that holds no key. Argument: the most keys that the tier can hold, in blocks or chunks."""
