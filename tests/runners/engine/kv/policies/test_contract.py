"""The contract of an eviction policy of the engine, held by every policy in its room, and how policies are found by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.host_tier import HostTier
from kvbench.runners.engine.kv.policies.registry import make_policy, policies
from kvbench.runners.simulator.policies import registry as simulated
from tests.runners.policies import IN_ENGINE, registered

NAMES = sorted(policies())


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, derandomize=True, max_examples=150)
@given(calls=st.lists(st.tuples(st.sampled_from(["use", "pin", "evict"]), st.integers(0, 9)), max_size=60))
def test_only_what_may_go_is_evicted_and_each_once(name: str, calls: list[tuple[str, int]]) -> None:
    policy = make_policy(name, 10)
    free: set[bytes] = set()
    for call, number in calls:
        key = b"%d" % number
        if call == "use":
            policy.use(key)
            free.add(key)
        elif call == "pin" and key in free:
            policy.pin(key)
            free.remove(key)
        elif call == "evict" and free:
            free.remove(policy.evict())  # a KeyError if it was pinned, or is gone already
        assert len(policy) == len(free)
    assert {policy.evict() for _ in range(len(policy))} == free


@pytest.mark.parametrize("name", [*NAMES, *(entry.name for entry in IN_ENGINE)])
@settings(deadline=None, derandomize=True, max_examples=150)
@given(calls=st.lists(st.tuples(st.sampled_from(["hold", "use", "pin", "take", "replace"]), st.integers(0, 9)), max_size=60))
def test_what_holds_places_evicts_what_single_calls_evict(name: str, calls: list[tuple[str, int]]) -> None:
    with registered():
        policy, single = make_policy(name, 10), make_policy(name, 10)
    places: dict[bytes, int] = {}
    for place, (call, number) in enumerate(calls):
        key = b"%d" % number
        if call == "hold" and key not in places:
            policy.hold(key, place)
            single.use(key)
            places[key] = place
        elif call in ("use", "pin") and key in places:
            for one in (policy, single):
                getattr(one, call)(key)
            if call == "pin":
                del places[key]
        elif call == "take":
            count = min(number, len(places))
            assert policy.take(count) == [places.pop(single.evict()) for _ in range(count)]
        elif call == "replace" and places and key not in places:
            gone = single.evict()
            assert policy.replace(key) == places[gone]
            single.use(key)
            places[key] = places.pop(gone)
        assert len(policy) == len(places)
        assert {key: policy.places[key] for key in places} == places
    assert policy.take(len(policy)) == [places[single.evict()] for _ in range(len(single))]


def test_every_policy_of_the_engine_can_be_predicted() -> None:
    assert "lru" in NAMES
    assert set(NAMES) <= set(simulated.policies())


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    for make in (lambda: BlockPool(1, "oldest"), lambda: HostTier(1, 1, "oldest")):
        with pytest.raises(UsageError, match=r"^the engine has no eviction policy oldest; it has .*lru"):
            make()
