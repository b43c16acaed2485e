"""Which eviction policies the simulator has, by name: each module of this room that has a ``POLICY``, and what else was registered."""

from __future__ import annotations

from kvbench.errors import UsageError
from kvbench.registry.registry import Registry
from kvbench.runners.simulator.policies.policy import Future, Policy, PolicyEntry

_POLICIES: Registry[PolicyEntry] = Registry("kvbench.runners.simulator.policies", "POLICY")
policies, register, unregister = _POLICIES.all, _POLICIES.register, _POLICIES.unregister


def find_policy(name: str) -> PolicyEntry:
    """The policy of this name; raises ``UsageError`` if there is none."""
    known = policies()
    if name not in known:
        raise UsageError(f"the simulator has no eviction policy {name}; it has {', '.join(sorted(known))}")
    return known[name]


def make_policy(name: str, capacity: int, future: Future | None = None) -> Policy:
    """See :attr:`PolicyEntry.make`; ``UsageError``: no such policy, or it needs the future, and that is not known (``None``)."""
    entry = find_policy(name)
    if entry.needs_future and future is None:
        raise UsageError(f"policy {name} must know the requests to come, and here they are not known; choose another, such as lru")
    return entry.make(capacity, () if future is None else future)
