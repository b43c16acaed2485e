"""Which plans hold under which eviction policies: where a plan needs a property that a policy lacks, it is refused by name."""

from __future__ import annotations

from kvbench.errors import UsageError
from kvbench.runners.simulator.policies.registry import find_policy

INSTEAD = "use policy lru, or simulate each size by itself (--runner simulator)"


def check_search(tier: str, policy: str) -> None:
    """A search by halves for the smallest size of a tier needs hits that never fall as the tier grows.

    Raises ``UsageError``: the policy lacks the inclusion property, or there is no such policy.
    """
    if not find_policy(policy).has_inclusion:
        raise UsageError(
            f"the {tier} evicts by {policy}, under which a larger one may hit less (no inclusion property), so its smallest size cannot be "
            f"searched for; {INSTEAD}"
        )


def check_stack_distances(profile: str, policy: str) -> None:
    """Stack distances tell the hits of all pools at once, under LRU only; ``UsageError``: the policy is another one."""
    if policy != "lru":
        raise UsageError(
            f"profile {profile} evicts by {policy}, and a trace's hits at all pool sizes are counted by stack distances, which are lru's; "
            f"{INSTEAD}"
        )
