"""The contract of an eviction policy of the simulator: which keys a cache holds, and which of them goes first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

Key = Hashable
"""Names the content of one block or chunk, everything before it included."""

Future = Sequence[Sequence[Key]]
"""The keys of each request to come, head first."""


class Policy(ABC):
    """A set of keys with an order of eviction. The caller says when a key must go, the policy says which one.

    A policy decides by the order of the calls alone. ``use`` of several keys is the same as ``use`` of each in turn, and so is ``evict``
    (unless the policy needs the future): the engine makes the same calls with one key at a time, and must evict the same keys.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Keys held, the pinned ones included; changes nothing."""

    @abstractmethod
    def __contains__(self, key: Key) -> bool:
        """Whether the key is held, pinned or not; changes nothing."""

    @abstractmethod
    def use(self, keys: Sequence[Key]) -> None:
        """A request used these keys, each once, in this order. Holds those that were not held, and unpins those that were pinned."""

    @abstractmethod
    def pin(self, keys: Sequence[Key]) -> None:
        """These held keys stay until the next :meth:`use`, which names them again: a running request reads them."""

    @abstractmethod
    def evict(self, count: int) -> list[Key]:
        """Remove the ``count`` keys that go first, and return them in that order. At least so many are held and not pinned."""

    # The rest follows from the above. A policy may do it faster, with the same result.

    def held(self, keys: Sequence[Key]) -> list[Key]:
        """Those of the keys that are held, pinned or not, in the same order; changes nothing."""
        return [key for key in keys if key in self]

    def leading_run(self, keys: Sequence[Key]) -> int:
        """How many of the keys are held before the first one that is not; changes nothing."""
        return next((run for run, key in enumerate(keys) if key not in self), len(keys))

    def is_disjoint(self, keys: Iterable[Key]) -> bool:
        """Whether none of the keys is held; changes nothing."""
        return all(key not in self for key in keys)

    def admit(self, keys: Sequence[Key], capacity: int) -> None:
        """A request uses these keys; before it does, others are evicted until all fit ``capacity`` keys.

        If the request alone has more than that, some of its own keys are evicted afterwards. Nothing else may be pinned.
        """
        held = self.held(keys)
        self.pin(held)
        others = len(self) - len(held)
        self.evict(max(0, min(others, others + len(keys) - capacity)))
        self.use(keys)
        self.evict(max(0, len(self) - capacity))

    def store(self, keys: Sequence[Key], capacity: int) -> None:
        """Use keys one after the other; each that is not held first evicts another, if ``capacity`` (at least 1) keys are held."""
        for key in keys:
            if key not in self and len(self) >= capacity:
                self.evict(1)
            self.use([key])


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """What a file of this room has as ``POLICY``."""

    name: str
    make: Callable[[int, Future], Policy]
    """Makes an empty cache. Arguments: its capacity in keys, and the requests to come (empty unless ``needs_future``)."""
    has_inclusion: bool = False
    """Whether a cache of any capacity holds all that a smaller one holds, at every moment (the inclusion, or stack, property). Hits then
    never fall as the capacity grows, which a search for the smallest capacity needs."""
    needs_future: bool = False
    """Whether it must know the requests to come: a bound, and no policy that a server could have."""
