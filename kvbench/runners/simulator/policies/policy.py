"""The contract of an eviction policy: what a tier holds, and what of it goes first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

Key = Hashable
"""Names the content of one block or chunk, everything before it included."""


class Policy(Protocol):
    """A set of keys with an order in which they go. It has no size of its own: whoever uses it says when to evict."""

    def __len__(self) -> int:
        """Keys held."""

    def __contains__(self, key: Key) -> bool:
        """Whether the key is held; changes nothing."""

    def leading_run(self, keys: Sequence[Key]) -> int:
        """How many of the keys are held before the first one that is not; changes nothing."""

    def is_disjoint(self, keys: Iterable[Key]) -> bool:
        """Whether none of the keys is held; changes nothing."""

    def use(self, keys: Sequence[Key]) -> None:
        """A request used these keys, each once: hold them all, held before or not. What should go first of them comes first."""

    def evict(self, count: int) -> list[Key]:
        """Remove the ``count`` keys (at most ``len(self)``) that go first, and return them in that order.

        Those of the last :meth:`use` go only when no other is left.
        """
