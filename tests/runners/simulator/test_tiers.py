"""The rules of pool and tier that only vLLM with LMCache has, and what does not fit."""

from __future__ import annotations

import pytest

from kvbench.errors import UsageError
from kvbench.runners.profiles import DOCUMENTS, ENGINE, VLLM
from kvbench.runners.simulator.host_tier import ChunkTier
from kvbench.runners.simulator.prefixes import Prefixes
from kvbench.runners.simulator.simulator import CacheSizes, make_simulator


def lmcache(capacity: int) -> ChunkTier:
    assert VLLM.host is not None
    return ChunkTier(capacity, 256, VLLM.host)


def kept(tier: ChunkTier, chunks: int) -> list[int]:
    """Which of the chunks 0 .. ``chunks`` − 1 are held, each asked for alone; asking uses what it finds."""
    return [chunk for chunk in range(chunks) if tier.load([chunk], 0, tier.chunk_tokens)[1]]


def test_the_background_job_evicts_a_fifth_at_the_watermark_until_below_it() -> None:
    tier = lmcache(20)
    tier.store(range(15))
    assert len(tier) == 15
    tier.store([15])
    assert len(tier) == 13  # 16 of 20 are at the watermark of 0.8, and a fifth of 16 is 3


def test_a_requests_tail_goes_before_its_head_in_lmcache() -> None:
    tier = lmcache(20)
    tier.store(range(16))
    assert kept(tier, 16) == list(range(13))


def test_a_lookup_uses_the_whole_run_whatever_the_device_held() -> None:
    tier = lmcache(20)
    tier.store(range(8))
    tier.store(range(8, 15))
    assert tier.load(range(8), start=8 * 256, limit=8 * 256) == (8 * 256, 8 * 256)
    tier.store([15])
    assert kept(tier, 16) == [*range(8), *range(8, 12), 15]


def test_what_finds_no_room_is_not_stored() -> None:
    tier = lmcache(20)
    tier.store(range(30))
    assert max(kept(tier, 30)) < 20


def test_one_round_evicts_at_least_one_chunk() -> None:
    tier = lmcache(1)
    tier.store([0])
    assert len(tier) == 0


def test_lmcache_gives_all_but_the_last_token_of_a_prompt_of_whole_chunks() -> None:
    simulator = make_simulator(VLLM, CacheSizes(17 * 32, 32, 10**6))
    for document in (0, 1):
        simulator.read([document] * 512, 1)
    assert tuple(simulator.read([0] * 512, 1)) == (0, 511, 1)


def test_lmcache_finds_nothing_behind_a_chunk_it_lost() -> None:
    tier = lmcache(20)
    tier.store([1, 2])
    assert tier.load([0, 1, 2], start=256, limit=700) == (256, 0)


def test_lmcache_stores_the_prompt_and_not_the_output() -> None:
    simulator = make_simulator(VLLM, CacheSizes(33 * 32, 32, 10**6))
    simulator.read([0] * 250, 300, output=[0] * 300)
    simulator.read([1] * 1000, 1)
    assert tuple(simulator.read([0] * 550, 1)) == (0, 0, 550)


def test_vllm_finds_the_second_of_two_equal_blocks_once_the_first_is_reused() -> None:
    """The only block of a prompt is computed again although it is cached; the answer then takes every other block, that one too."""
    for profile, blocks, hit in ((VLLM, 6, 1), (ENGINE, 5, 0)):
        simulator = make_simulator(profile, CacheSizes(blocks, 1))
        simulator.read([0], 1)
        assert simulator.read([0], 5).device == 0
        assert simulator.read([0, 0], 1).device == hit


def test_equal_numbers_mean_equal_prefixes() -> None:
    prefixes = Prefixes(2)
    assert prefixes.of([1, 2, 3, 4, 5]) == [0, 1]
    assert prefixes.of([1, 2, 3, 4, 5, 6]) == [0, 1, 2]
    assert prefixes.of([3, 4, 1, 2]) == [3, 4]  # the same blocks elsewhere are others
    assert prefixes.of([1]) == []


def test_a_request_larger_than_the_pool_is_refused_with_the_sizes() -> None:
    for profile, blocks in ((ENGINE, 4), (VLLM, 3)):
        simulator = make_simulator(profile, CacheSizes(64, 16))
        with pytest.raises(UsageError, match=f"needs 5 blocks, the pool has {blocks}"):
            simulator.read([0] * 60, 6)
    assert make_simulator(ENGINE, CacheSizes(64, 16)).read([0] * 60, 5).computed == 60  # the last output token needs no slot


def test_a_document_larger_than_the_cache_is_computed_and_evicts_nothing() -> None:
    simulator = make_simulator(DOCUMENTS, CacheSizes(100, 16, 100))
    simulator.read([0] * 60, 1, "small")
    assert simulator.read([0] * 101, 1, "large").computed == 101
    assert simulator.read([0] * 101, 1, "large").computed == 101
    assert simulator.read([0] * 60, 1, "small").device == 60


@pytest.mark.parametrize("capacity", [CacheSizes(64, 0), CacheSizes(64, 16, 64, 0), CacheSizes(64, 16, 64, 24)])
def test_sizes_that_do_not_go_together_are_refused(capacity: CacheSizes) -> None:
    with pytest.raises(UsageError, match=r"tokens|multiple"):
        make_simulator(ENGINE, capacity)


def test_a_pool_of_reserved_blocks_only_is_refused() -> None:
    with pytest.raises(UsageError, match="reserves 1"):
        make_simulator(VLLM, CacheSizes(15, 16))
