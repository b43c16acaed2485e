"""The smallest pool and the smallest host tier for a purpose, found by simulation.

A search by halves needs a property that stays once it holds. Under an eviction policy with the inclusion property it does, and any other
is refused:

- **Pool.** By that property a larger pool holds what a smaller one does, and more. (For pools in which every request runs. Whole documents
  that are larger than the pool would break it.)
- **Host tier that evicts to make room.** The device's hits do not depend on it, so every size sees the same uses in the same order.
- **Host tier with a watermark.** There it can break: a larger tier may evict a fifth of its chunks at a worse moment. What is certain is
  the size from which on nothing is evicted; below it the search finds a size that does where one chunk less does not, an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench.errors import UsageError
from kvbench.planning.planned_workload import PlannedWorkload
from kvbench.runners.simulator.policies.registry import find_policy

INSTEAD = "use policy lru, or simulate each size by itself (--runner simulator)"
"""What to do where a plan does not hold under an eviction policy."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Smallest pools, in units, for the headline pass. ``None``: nothing of it is read again."""

    hits_at_all: int | None
    hits_everything: int | None


@dataclass(frozen=True, slots=True)
class Hosts:
    """Smallest host tiers, in chunks.

    ``hits_everything``: of what the pool has lost every token is found that a tier without limits finds; ``exact``: no background job has
    a part in it. ``keeps_everything``: nothing is ever evicted.
    """

    hits_everything: int
    exact: bool
    keeps_everything: int


def smallest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest size of ``low .. high`` for which a property holds that ``high`` has and that stays once it holds."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def smallest_pools(planned: PlannedWorkload) -> Pools:
    """In which the headline pass hits at all, and all that is read again; ``UsageError``: the policy lacks the inclusion property."""
    _check_inclusion("device pool", planned.device_policy)
    index, low, high = planned.headline, planned.smallest_pool, planned.roomy_pool
    most = planned.read(high, None).device(index)
    if not most:
        return Pools(None, None)
    at_all = smallest(low, high, lambda pool: planned.read(pool, None).device(index) > 0)
    return Pools(at_all, smallest(at_all, high, lambda pool: planned.read(pool, None).device(index) == most))


def smallest_hosts(planned: PlannedWorkload, pool: int) -> Hosts:
    """The smallest host tiers beside a pool, over all passes; ``UsageError``: the tier's policy lacks the inclusion property."""
    _check_inclusion("host tier", planned.host_policy)
    roomy = planned.roomy_host
    most = planned.read(pool, roomy).hits
    found = smallest(0, roomy, lambda host: planned.read(pool, host).hits == most)
    return Hosts(found, planned.read(pool, found).exact, roomy)


def _check_inclusion(tier: str, policy: str) -> None:
    """A search by halves needs hits that never fall as the tier grows; ``UsageError``: the policy does not promise them."""
    if not find_policy(policy).has_inclusion:
        raise UsageError(
            f"the {tier} evicts by {policy}, under which a larger one may hit less (no inclusion property), so its smallest size cannot be "
            f"searched for; {INSTEAD}"
        )
