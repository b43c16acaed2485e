"""Eviction policies that tests register, in the simulator and in the engine: first in, first out, and most recently used first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvbench.runners.engine.kv.policies import registry as engine
from kvbench.runners.engine.kv.policies.policy import EnginePolicy, EnginePolicyEntry
from kvbench.runners.simulator.policies import registry as simulator
from kvbench.runners.simulator.policies.policy import Key, Policy, PolicyEntry


class Listed(Policy):
    """Keys in a list, those that go first in front."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.pinned: set[Key] = set()

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: Key) -> bool:
        return key in self.keys

    def use(self, keys: Sequence[Key]) -> None:
        self.pinned -= set(keys)
        for key in keys:
            self.place(key)

    def pin(self, keys: Sequence[Key]) -> None:
        self.pinned |= set(keys)

    def evict(self, count: int) -> list[Key]:
        gone = [key for key in self.keys if key not in self.pinned][:count]
        self.keys = [key for key in self.keys if key not in gone]
        return gone

    def place(self, key: Key) -> None:
        raise NotImplementedError


class Fifo(Listed):
    """First held, first out: a use changes nothing. It has no inclusion property (Belady's anomaly)."""

    def place(self, key: Key) -> None:
        if key not in self.keys:
            self.keys.append(key)


class Mru(Listed):
    """The most recently used goes first."""

    def place(self, key: Key) -> None:
        self.keys = [key, *(other for other in self.keys if other != key)]


class EngineFifo(EnginePolicy):
    """As :class:`Fifo`, from numbers: each key's is that of when it was first used since it was last evicted."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.free: set[bytes] = set()
        self.count = 0

    def __len__(self) -> int:
        return len(self.free)

    def use(self, key: bytes) -> None:
        self.count += 1
        self.numbers.setdefault(key, self.count)
        self.free.add(key)

    def pin(self, key: bytes) -> None:
        self.free.remove(key)

    def evict(self) -> bytes:
        key = min(self.free, key=self.numbers.__getitem__)
        self.free.remove(key)
        del self.numbers[key]
        return key


class EngineMru(EngineFifo):
    """As :class:`Mru`."""

    def use(self, key: bytes) -> None:
        self.count -= 1
        self.numbers[key] = self.count
        self.free.add(key)


SIMULATED = (PolicyEntry("fifo", lambda capacity, future: Fifo()), PolicyEntry("mru", lambda capacity, future: Mru()))
IN_ENGINE = (EnginePolicyEntry("fifo", lambda capacity: EngineFifo()), EnginePolicyEntry("mru", lambda capacity: EngineMru()))


@contextmanager
def registered() -> Iterator[None]:
    """Both policies by name, in the simulator and in the engine."""
    for entry in SIMULATED:
        simulator.register(entry)
    for other in IN_ENGINE:
        engine.register(other)
    try:
        yield
    finally:
        for entry in SIMULATED:
            simulator.unregister(entry.name)
        for other in IN_ENGINE:
            engine.unregister(other.name)
