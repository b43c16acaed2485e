"""Which eviction policies the engine has, by name: each module of this room that has a ``POLICY``, and what else was registered."""

from __future__ import annotations

from kvbench.errors import UsageError
from kvbench.registry.registry import Registry
from kvbench.runners.engine.kv.policies.policy import EnginePolicy, EnginePolicyEntry

_POLICIES: Registry[EnginePolicyEntry] = Registry("kvbench.runners.engine.kv.policies", "POLICY")
policies, register, unregister = _POLICIES.all, _POLICIES.register, _POLICIES.unregister


def make_policy(name: str, capacity: int) -> EnginePolicy:
    """A policy that holds no key yet; ``capacity`` as for :attr:`EnginePolicyEntry.make`.

    Raises:
        UsageError: there is none of this name.
    """
    known = policies()
    if name not in known:
        raise UsageError(f"the engine has no eviction policy {name}; it has {', '.join(sorted(known))}")
    return known[name].make(capacity)
