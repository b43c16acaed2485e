"""A block trace at one capacity, request by request: what :mod:`stack_distance` gives for LRU, and what other policies would give.

Every block of the trace is one of the cache, the last and perhaps not full one included, and all of a request's may hit: so are hit rates
of traces counted. Rules that need token counts (the last block is computed, chunks, partial blocks) are the simulator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvbench.runners.simulator.policies.policy import Key, Policy
from kvbench.runners.simulator.policies.registry import make_policy


def replay(requests: Iterable[Sequence[Key]], capacity: int, tail_first: bool, policy: Policy | None = None) -> int:
    """Block hits of all requests in a cold cache: of each its leading run of blocks found; then it uses all its blocks.

    Args:
        requests: block keys of each, head first, none of them twice.
        capacity: in blocks. Of a request that has more, those used first go.
        tail_first: whether a request's tail is used before its head, and so goes first.
        policy: an empty cache under another policy than LRU.
    """
    held = make_policy("lru", capacity) if policy is None else policy
    hits = 0
    for keys in requests:
        hits += held.leading_run(keys)
        held.admit(keys[::-1] if tail_first else keys, capacity)
    return hits


def most_hits(requests: Sequence[Sequence[Key]], capacity: int) -> int:
    """As :func:`replay`, the most that any order of eviction could give (:class:`~kvbench.runners.simulator.policies.belady.Belady`)."""
    return replay(requests, capacity, tail_first=True, policy=make_policy("belady", capacity, requests))
