"""Which eviction policies the engine has, by name: each module of this room that has a ``POLICY``, and what else was registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

import kvbench.runners.engine.kv.policies as room
from kvbench.errors import UsageError
from kvbench.runners.engine.kv.policies.policy import EnginePolicy, EnginePolicyEntry

_registered: dict[str, EnginePolicyEntry] = {}


@cache
def _found() -> dict[str, EnginePolicyEntry]:
    """The policies of this room. Its modules are found, not listed."""
    modules = [importlib.import_module(module.name) for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")]
    entries: list[EnginePolicyEntry] = [module.POLICY for module in modules if hasattr(module, "POLICY")]
    return {entry.name: entry for entry in entries}


def policies() -> Mapping[str, EnginePolicyEntry]:
    """Every policy by its name."""
    return _found() | _registered


def make_policy(name: str, capacity: int) -> EnginePolicy:
    """A policy that holds no key yet; ``capacity`` as for :attr:`EnginePolicyEntry.make`.

    Raises:
        UsageError: there is none of this name.
    """
    known = policies()
    if name not in known:
        raise UsageError(f"the engine has no eviction policy {name}; it has {', '.join(sorted(known))}")
    return known[name].make(capacity)


def register(entry: EnginePolicyEntry) -> None:
    """Add a policy that is no file of this room."""
    _registered[entry.name] = entry


def unregister(name: str) -> None:
    """Take one away that was added."""
    _registered.pop(name, None)
