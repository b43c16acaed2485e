"""The host tier: what is kept, what goes first, and that a small one is never wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.runners.engine.kv.host_tier import HostTier
from kvbench.runners.engine.model.model import Model
from tests.runners.engine.driver import FakeEngine, check_host_content, eviction_order
from tests.runners.engine.kv.test_pool_machine import FAST
from tests.runners.engine.reference import CHUNK, Reference, WatchedEngine, assert_equal, draw


@pytest.mark.parametrize("capacity", [None, 0, CHUNK - 1, CHUNK, 2 * CHUNK, 1024])
def test_any_size_gives_right_answers(model: Model, reference: Reference, capacity: int | None) -> None:
    engine = WatchedEngine(model, blocks=20, budget=37, host=capacity)
    prompts = [(draw(seed, 60), 4) for seed in range(3)]
    sequences = engine.run(prompts) + engine.run(prompts) + engine.run(list(reversed(prompts)))
    assert_equal(reference, engine, sequences)
    hits = sum(sequence.host_hit or 0 for sequence in sequences[3:6])
    assert (hits > 0) is (capacity == 1024)


def test_the_least_recently_used_chunk_goes_first() -> None:
    tier = HostTier(2, 4)
    assert (tier.put(b"a"), tier.put(b"b")) == (0, 1)
    tier.touch(b"a")
    assert tier.put(b"c") == 1  # instead of b
    assert (tier.find(b"a"), tier.find(b"b"), tier.find(b"c"), len(tier), tier.evicted) == (0, None, 1, 2, 1)


def test_finding_a_chunk_is_not_using_it() -> None:
    tier = HostTier(2, 4)
    tier.put(b"a")
    tier.put(b"b")
    tier.find(b"a")
    tier.put(b"c")
    assert tier.find(b"a") is None


def test_putting_a_chunk_that_is_there_writes_nothing_and_uses_it() -> None:
    tier = HostTier(2, 4)
    tier.put(b"a")
    tier.put(b"b")
    assert tier.put(b"a") is None
    tier.put(b"c")
    assert (tier.find(b"a"), tier.find(b"b")) == (0, None)


def test_a_tier_without_room_keeps_nothing() -> None:
    tier = HostTier(0, 4)
    assert (tier.put(b"a"), tier.find(b"a"), len(tier), tier.evicted) == (None, None, 0, 0)


@settings(FAST, max_examples=80)
@given(st.integers(1, 5), st.lists(st.integers(0, 8), max_size=60))
def test_slots_are_held_once_and_lru_is_what_a_list_says(capacity: int, uses: list[int]) -> None:
    tier = HostTier(capacity, 4)
    recent: list[bytes] = []
    where: dict[bytes, int] = {}
    for key in (b"%d" % use for use in uses):
        slot = tier.put(key)
        assert (slot is None) == (key in recent)
        if slot is not None:
            where = {other: held for other, held in where.items() if held != slot} | {key: slot}
        recent = ([other for other in recent if other != key] + [key])[-capacity:]
        assert sorted(where) == sorted(recent)
        assert all(tier.find(other) == held for other, held in where.items())
        assert len(tier) == len(set(where.values())) <= capacity


def test_a_device_hit_touches_nothing_in_the_host() -> None:
    engine = FakeEngine(64, host=64, chunk=8)
    a, b = [1] * 17, [2] * 17
    engine.run([(a, 1), (b, 1)])
    assert engine.host is not None
    before = eviction_order(engine.host)
    [again] = engine.run([(a, 1)])
    assert (again.device_hit, again.host_hit) == (16, 0)
    assert eviction_order(engine.host) == before


def test_a_host_hit_makes_its_chunks_the_most_recent() -> None:
    engine = FakeEngine(64, host=64, chunk=8)
    engine.run([([1] * 17, 1), ([2] * 17, 1)])
    engine.churn(engine.pool.free_blocks)
    assert engine.host is not None
    first, second, third, fourth = eviction_order(engine.host)
    engine.run([([1] * 17, 1)])
    assert eviction_order(engine.host) == [third, fourth, first, second]


def test_only_chunks_completed_by_computed_tokens_are_written() -> None:
    engine = FakeEngine(64, host=0, chunk=8)
    prompt = list(range(22))
    engine.run([(prompt, 1)])
    engine.host = engine.cache.host = HostTier(4, 8)  # a tier that has missed all of that
    engine.store.host = engine.store.host.new_zeros(4, *engine.store.host.shape[1:])
    engine.transfer = type(engine.transfer)(engine.store)  # type: ignore[call-arg]
    [again] = engine.run([(prompt, 4)])  # 20 tokens hit, 2 + 3 computed: chunk 16 .. 23 is completed, the first two were not computed
    assert (again.device_hit, engine.counters.stored_tokens) == (20, 8)
    assert eviction_order(engine.host) == [again.chunk_keys.keys[2]]
    check_host_content(engine)


def test_a_chunk_is_written_once_only() -> None:
    engine = FakeEngine(64, host=64, chunk=8)
    engine.run([([1] * 17, 1)])
    assert engine.counters.stored_tokens == 16
    engine.churn(engine.pool.free_blocks)
    engine.run([([1] * 17, 1)])
    assert engine.counters.stored_tokens == 16
    assert engine.counters.loaded_tokens == 16
