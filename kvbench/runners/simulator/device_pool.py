"""The device pool as the simulator sees it: which blocks could be found, and which are reused for the next request.

Physical blocks have no numbers here. One that nobody can find is as good as any other such, so they are counted; the rest are known
by their content and stand in the order of the eviction policy. Requests come one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.errors import UsageError
from kvbench.runners.profiles import DeviceRules
from kvbench.runners.simulator.policies.policy import Key
from kvbench.runners.simulator.policies.registry import make_policy


@dataclass(frozen=True, slots=True)
class Blank:
    """A block that nobody can find, where it has a place among the others."""

    number: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A block with the content of another one."""

    key: Key
    number: int


class DevicePool:
    """``blocks`` physical blocks under a profile's rules. Invariant between requests: blank + findable = usable blocks."""

    def __init__(self, blocks: int, rules: DeviceRules) -> None:
        """Cold, every block blank; ``UsageError``: the profile reserves more blocks than there are, or its policy cannot be used."""
        self.usable = blocks - rules.reserved_blocks
        if self.usable < 0:
            raise UsageError(f"the pool has {blocks} blocks, and the profile reserves {rules.reserved_blocks}; raise --kv-tokens")
        self._rules = rules
        self._findable = make_policy(rules.policy, self.usable)
        self._blank = self.usable
        self._copies: dict[Key, list[Key]] = {}
        """Of content that several blocks hold, the name of each such block, oldest first. The first one's is its key."""
        self._made = 0
        """Names made so far for blocks that are not named by their key."""

    def read(self, keys: Sequence[Key], limit: int, prompt_blocks: int, blocks: int) -> int:
        """Run one request from start to end; returns how many of its blocks were found, the leading run.

        Args:
            keys: of every block it fills, output included, head first. Equal keys mean equal content and an equal whole prefix.
            limit: at most so many blocks may be found.
            prompt_blocks: blocks the prompt takes, the last one perhaps not full.
            blocks: blocks that prompt and output take in the end.

        Raises ``UsageError``: that is more than the pool has.
        """
        if blocks > self.usable:
            raise UsageError(f"a request needs {blocks:,} blocks, the pool has {self.usable:,}; raise --kv-tokens")
        hits = self._findable.leading_run(keys if len(keys) <= limit else keys[:limit])
        if self._copies or not self._findable.is_disjoint(keys[hits:] if hits else keys):
            return self._read_step_by_step(keys, limit, prompt_blocks, blocks)
        # Every block that the request fills is new, so nothing depends on the order within it.
        self._blank = max(self._blank - (blocks - hits), 0)
        names = self._freed(keys, blocks - len(keys))
        self._findable.admit(names, self.usable - self._blank)
        return hits

    def held(self, keys: Sequence[Key]) -> int:
        """How many of ``keys``, head first, could be found now, the leading run; changes nothing."""
        return len(self._find(keys))

    def _read_step_by_step(self, keys: Sequence[Key], limit: int, prompt_blocks: int, blocks: int) -> int:
        """As :meth:`read`. A block whose content is there already gets a name that depends on what is evicted just before it is full."""
        table = self._find(keys[:limit])
        hits = len(table)
        self._findable.pin(table)
        self._allocate(prompt_blocks - hits)
        filled = min(prompt_blocks, len(keys))  # if the output fills the prompt's last block, no other is taken before that
        table += [self._name(key) for key in keys[hits:filled]]
        for index in range(filled, blocks):
            if index >= prompt_blocks:
                self._allocate(1)
            table += [self._name(key) for key in keys[index : index + 1]]
        partial = blocks - len(table)
        if self._rules.blanks_first:
            findable = [name for name in table if not isinstance(name, Blank)]
            self._blank += len(table) - len(findable)
            table = findable
        self._findable.use(self._freed(table, partial))
        return hits

    def _find(self, keys: Sequence[Key]) -> list[Key]:
        """The names of the blocks that hold the leading run of ``keys``; of several with equal content, the oldest."""
        names = [self._copies[key][0] if key in self._copies else key for key in keys]
        return names[: self._findable.leading_run(names)]

    def _allocate(self, count: int) -> None:
        """Take ``count`` free blocks: blank ones, then those that go first."""
        blank = min(count, self._blank)
        self._blank -= blank
        for name in self._findable.evict(count - blank):
            key = name.key if isinstance(name, Duplicate) else name
            if key in self._copies:
                self._copies[key].remove(name)
                if self._copies[key] in ([], [key]):
                    del self._copies[key]

    def _name(self, key: Key) -> Key:
        """The name of one more block with this content: its key if there is no other, and a blank one's if only the first can be found."""
        if key not in self._findable and key not in self._copies:
            return key
        if not self._rules.keeps_duplicates:
            return self._new_blank()
        self._made += 1
        copy = Duplicate(key, self._made)
        self._copies.setdefault(key, [key]).append(copy)
        return copy

    def _freed(self, findable: Sequence[Key], partial: int) -> Sequence[Key]:
        """The names of a request's blocks in the order in which they are freed: those that can be found, and ``partial`` that are not full.

        Where not-full ones have no place among the others, they are counted as blank at once.
        """
        if self._rules.blanks_first:
            self._blank += partial
        elif partial:
            findable = [*findable, *(self._new_blank() for _ in range(partial))]
        return findable[::-1] if self._rules.tail_first else findable

    def _new_blank(self) -> Blank:
        self._made += 1
        return Blank(self._made)
