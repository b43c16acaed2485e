"""Which eviction policies the simulator has, by name: each module of this room that has a ``POLICY``, and what else was registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

import kvbench.runners.simulator.policies as room
from kvbench.errors import UsageError
from kvbench.runners.simulator.policies.policy import Future, Policy, PolicyEntry

_registered: dict[str, PolicyEntry] = {}


@cache
def _found() -> dict[str, PolicyEntry]:
    """The policies of this room. Its modules are found, not listed."""
    modules = [importlib.import_module(module.name) for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")]
    entries: list[PolicyEntry] = [module.POLICY for module in modules if hasattr(module, "POLICY")]
    return {entry.name: entry for entry in entries}


def policies() -> Mapping[str, PolicyEntry]:
    """Every policy by its name."""
    return _found() | _registered


def find_policy(name: str) -> PolicyEntry:
    """The policy of this name.

    Raises:
        UsageError: there is none.
    """
    known = policies()
    if name not in known:
        raise UsageError(f"the simulator has no eviction policy {name}; it has {', '.join(sorted(known))}")
    return known[name]


def make_policy(name: str, capacity: int, future: Future | None = None) -> Policy:
    """An empty cache under a policy; arguments as for :attr:`PolicyEntry.make`, ``future`` ``None`` where it is not known.

    Raises:
        UsageError: there is no such policy, or it needs the future.
    """
    entry = find_policy(name)
    if entry.needs_future and future is None:
        raise UsageError(f"policy {name} must know the requests to come, and here they are not known; choose another, such as lru")
    return entry.make(capacity, () if future is None else future)


def register(entry: PolicyEntry) -> None:
    """Add a policy that is no file of this room."""
    _registered[entry.name] = entry


def unregister(name: str) -> None:
    """Take one away that was added."""
    _registered.pop(name, None)
