"""The contract of an eviction policy, held by every policy in the simulator's room, and how policies are found by name."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.simulator.policies.policy import Key, Policy
from kvbench.runners.simulator.policies.registry import find_policy, make_policy, policies
from kvbench.runners.simulator.replay import replay

NAMES = sorted(policies())
SETTINGS = settings(deadline=None, derandomize=True, max_examples=600)
REQUESTS = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True), min_size=1, max_size=20)


def plain_admit(policy: Policy, keys: list[int], capacity: int) -> list[Key]:
    """As :meth:`Policy.admit`, by the abstract methods alone; returns what was evicted."""
    held = [key for key in keys if key in policy]
    policy.pin(held)
    others = len(policy) - len(held)
    evicted = policy.evict(max(0, min(others, others + len(keys) - capacity)))
    assert not set(evicted) & set(keys), "a pinned key went"
    policy.use(keys)
    return evicted + policy.evict(max(0, len(policy) - capacity))


def test_the_policies_of_the_room_are_found() -> None:
    assert {"lru", "belady"} <= set(NAMES)
    assert all(find_policy(name).name == name for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(requests=REQUESTS, capacity=st.integers(1, 12), unannounced=st.integers(0, 2))
def test_held_is_what_was_used_less_what_was_evicted(name: str, requests: list[list[int]], capacity: int, unannounced: int) -> None:
    """``unannounced``: keys at the end of each request that its future leaves out, as what a request leaves and none can find."""
    policy = make_policy(name, capacity, [keys[: len(keys) - unannounced] for keys in requests])
    held: set[Key] = set()
    for keys in requests:
        before = held - set(keys)
        evicted = plain_admit(policy, keys, capacity)
        assert len(set(evicted)) == len(evicted)
        assert set(evicted) <= held | set(keys)
        assert before <= set(evicted) or not set(evicted) & set(keys), "a key of the running request went before another"
        held = (held | set(keys)) - set(evicted)
        assert len(policy) == len(held) <= capacity
        assert [key for key in range(12) if key in policy] == sorted(held, key=hash)
        assert policy.held(range(12)) == [key for key in range(12) if key in held]
        assert policy.is_disjoint(set(range(12)) - held)
        assert policy.is_disjoint(keys) == (not held & set(keys))
        assert policy.leading_run(keys) == next((run for run, key in enumerate(keys) if key not in held), len(keys))


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(requests=REQUESTS, capacity=st.integers(1, 12))
def test_admit_is_what_the_plain_calls_do(name: str, requests: list[list[int]], capacity: int) -> None:
    policy, plain = make_policy(name, capacity, requests), make_policy(name, capacity, requests)
    for keys in requests:
        policy.admit(keys, capacity)
        plain_admit(plain, keys, capacity)
        assert [key in policy for key in range(12)] == [key in plain for key in range(12)]


WITHOUT_FUTURE = [name for name in NAMES if not policies()[name].needs_future]


@pytest.mark.parametrize("name", WITHOUT_FUTURE)
@SETTINGS
@given(requests=REQUESTS, capacity=st.integers(1, 12))
def test_store_is_a_use_of_one_key_after_the_other(name: str, requests: list[list[int]], capacity: int) -> None:
    policy, plain = make_policy(name, capacity), make_policy(name, capacity)
    for keys in requests:
        policy.store(keys, capacity)
        Policy.store(plain, keys, capacity)
        assert [key in policy for key in range(12)] == [key in plain for key in range(12)]
    assert policy.evict(len(policy)) == plain.evict(len(plain))


@pytest.mark.parametrize("name", WITHOUT_FUTURE)
@SETTINGS
@given(requests=REQUESTS, capacity=st.integers(1, 12))
def test_several_keys_are_as_each_in_turn(name: str, requests: list[list[int]], capacity: int) -> None:
    """What the agreement of simulator and engine rests on."""
    policy, single = make_policy(name, capacity), make_policy(name, capacity)
    for keys in requests:
        plain_admit(policy, keys, capacity)
        held = [key for key in keys if key in single]
        for key in held:
            single.pin([key])
        others = len(single) - len(held)
        for _ in range(min(others, others + len(keys) - capacity)):
            single.evict(1)
        for key in keys:
            single.use([key])
        for _ in range(len(single) - capacity):
            single.evict(1)
        assert [key in policy for key in range(12)] == [key in single for key in range(12)]


@pytest.mark.parametrize("name", [name for name in NAMES if policies()[name].has_inclusion])
@SETTINGS
@given(requests=REQUESTS)
def test_a_policy_with_inclusion_holds_in_any_cache_what_a_smaller_one_holds(name: str, requests: list[list[int]]) -> None:
    caches = [make_policy(name, capacity, requests) for capacity in range(1, 13)]
    for keys in requests:
        for capacity, cache in enumerate(caches, 1):
            cache.admit(keys, capacity)
        held = [{key for key in range(12) if key in cache} for cache in caches]
        assert all(smaller <= larger for smaller, larger in pairwise(held))


@pytest.mark.usefixtures("fifo_and_mru")
def test_fifo_of_the_textbook_hits_less_in_a_larger_cache() -> None:
    """Belady's anomaly: of twelve accesses nine miss in three frames, and ten in four. LRU: ten and eight."""
    requests = [[key] for key in (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)]
    for name, hits in (("fifo", (3, 2)), ("lru", (2, 4)), ("belady", (5, 6))):
        assert tuple(replay(requests, frames, True, make_policy(name, frames, requests)) for frames in (3, 4)) == hits


@pytest.mark.usefixtures("fifo_and_mru")
def test_mru_keeps_what_cyclic_reading_needs() -> None:
    """Four keys in turn, three kept. A miss evicts the key of the request before: 4 evicts 3, then 3 evicts 2, 2 evicts 1, 1 evicts 4."""
    requests = [[key] for _ in range(4) for key in (1, 2, 3, 4)]
    held = make_policy("mru", 3)
    hits = []
    for keys in requests:
        hits.append(held.leading_run(keys))
        held.admit(keys, 3)
    assert hits == [0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0]


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"^the simulator has no eviction policy oldest; it has belady, .*lru"):
        make_policy("oldest", 1)


def test_a_policy_that_needs_the_future_is_refused_without() -> None:
    with pytest.raises(UsageError, match=r"^policy belady must know the requests to come"):
        make_policy("belady", 1)


def test_lru_evicts_the_least_recently_used_of_a_long_trace() -> None:
    dice, policy = random.Random(1), make_policy("lru", 5)
    recent: list[int] = []
    for _ in range(500):
        key = dice.randrange(9)
        policy.admit([key], 5)
        recent = [*(other for other in recent if other != key), key][-5:]
        assert {other for other in range(9) if other in policy} == set(recent)
