"""The design's known values, each exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvbench.models.kv_size import kv_size
from kvbench.models.shapes import kv_bytes_per_token
from kvbench.runners.profiles import DOCUMENTS, ENGINE, PROFILES, VLLM, DeviceRules, Profile
from kvbench.runners.simulator.simulator import CacheSizes, make_simulator
from tests.runners.simulator.workloads import cyclic, prompt, read_passes, totals

NO_HITS = [0] * 10
ROOM = 10**6


def with_device(profile: Profile, **rules: Any) -> Profile:
    assert profile.device is not None
    device: DeviceRules = replace(profile.device, **rules)
    return replace(profile, device=device)


def test_profiles_are_found_by_name() -> None:
    assert dict(PROFILES) == {"engine": ENGINE, "vllm": VLLM, "documents": DOCUMENTS}


# documents


def test_documents_reread_in_order_hit_nothing_and_reversed_the_last_four_hit() -> None:
    passes = cyclic(DOCUMENTS, CacheSizes(21_520, 16), 5011)
    assert totals(passes[:2], "device") == [0, 0]
    assert [tokens.device for tokens in passes[2]] == [5011] * 4 + [0] * 6  # documents 9, 8, 7, 6


@pytest.mark.parametrize(("capacity", "hits"), [(50_109, 0), (50_110, 50_110)])
def test_documents_are_all_or_nothing(capacity: int, hits: int) -> None:
    assert totals(cyclic(DOCUMENTS, CacheSizes(capacity, 16), 5011), "device")[1] == hits


def test_documents_with_a_host_tier_that_holds_them_are_never_computed_twice() -> None:
    passes = cyclic(DOCUMENTS, CacheSizes(21_520, 16, 50_110), 5011)
    assert totals(passes, "computed") == [50_110, 0, 0]
    assert totals(passes, "host") == [0, 50_110, 6 * 5011]


# blocks


@pytest.mark.parametrize("tail_first", [True, False])
@pytest.mark.parametrize(("documents", "blocks"), [(4, 5), (10, 7), (3, 1)])
def test_reread_in_order_hits_follow_the_formula_at_every_pool(documents: int, blocks: int, tail_first: bool) -> None:
    """Each document of b blocks hits max(0, min(b, C − (N−1)·b)), or nothing below N·b when its head goes first."""
    rules = with_device(ENGINE, computes_last=False, tail_first=tail_first)
    for capacity in range(blocks, documents * blocks + 3):
        simulator = make_simulator(rules, CacheSizes(capacity, 1))
        for index in range(3):
            hits = [simulator.read([document] * blocks, 1).device for document in range(documents)]
            left = max(0, min(blocks, capacity - (documents - 1) * blocks))
            expected = left if tail_first or capacity >= documents * blocks else 0
            assert hits == [expected if index else 0] * documents


@pytest.mark.parametrize(("tokens", "output"), [(20, 1), (20, 5), (22, 1), (22, 3), (22, 8)])
def test_output_and_blocks_that_are_not_full_shift_the_formula(tokens: int, output: int) -> None:
    """Prompts of 5 full blocks of 4: full blocks of output count as the document's, and one that is not full is a block less of C."""
    rules = with_device(ENGINE, computes_last=False)
    full, rest = divmod(tokens + output - 1, 4)
    blank = int(rest > 0)
    for capacity in range(full + blank, 4 * full + blank + 3):
        simulator = make_simulator(rules, CacheSizes(capacity * 4, 4))
        for index in range(3):
            hits = [simulator.read([document] * tokens, output).device for document in range(4)]
            left = max(0, min(5, capacity - blank - 3 * full))
            assert hits == [4 * left if index else 0] * 4


# sizes


def test_kv_bytes_per_token() -> None:
    qwen = kv_size("qwen2.5-1.5b", "bfloat16", 5025)
    assert qwen.bytes_per_token == kv_bytes_per_token(28, 2, 128, 2) == 28_672
    assert round(qwen.gib(50_110), 2) == 1.34


# engine


def test_engine_without_a_tier() -> None:
    passes = cyclic(ENGINE, CacheSizes(21_520, 16), 5025)
    assert totals(passes, "device") == [0, 0, 21_504]
    assert [tokens.device for tokens in passes[2]] == [5024] * 4 + [1408] + [0] * 5
    assert totals(passes, "host") == [0, 0, 0]


def test_engine_with_a_tier() -> None:
    passes = cyclic(ENGINE, CacheSizes(21_520, 16, ROOM), 5025)
    assert totals(passes, "device") == [0, 0, 21_504]
    assert totals(passes, "host") == [0, 48_640, 27_776]
    assert totals(passes, "computed") == [50_250, 1_610, 970]


def test_engine_with_another_question_in_each_pass() -> None:
    simulator = make_simulator(ENGINE, CacheSizes(21_520, 16))
    passes = read_passes(simulator, 5025, 8, question=lambda index: index)
    assert [[tokens.device for tokens in requests] for requests in passes] == [NO_HITS, NO_HITS, [5008] * 4 + [1344] + [0] * 5]
    assert totals(passes, "device") == [0, 0, 21_376]


# vllm


SERVER = CacheSizes(672 * 32, 32, ROOM)
"""The servers of ``../shared/vllm-cpu``, the LMCache one with room for all."""


def test_vllm_with_lmcache_as_measured() -> None:
    passes = cyclic(VLLM, SERVER, 5003)
    assert totals(passes, "device") == [0, 0, 21_440]
    assert [tokens.device for tokens in passes[2]] == [4992] * 4 + [1472] + [0] * 5
    assert totals(passes, "host") == [0, 48_640, 27_712]
    assert 10 * 5003 - totals(passes, "device")[2] == 28_590  # asked of LMCache


def test_vllm_without_lmcache_as_measured() -> None:
    assert totals(cyclic(VLLM, replace(SERVER, host_tokens=None), 5003), "device") == [0, 0, 21_440]


@pytest.mark.parametrize(
    ("rules", "hits"), [({"reserved_blocks": 0}, 21_472), ({"blanks_first": False}, 21_216), ({"tail_first": False}, 19_968)]
)
def test_each_of_vllms_rules_shows_in_the_count(rules: dict[str, Any], hits: int) -> None:
    assert totals(cyclic(with_device(VLLM, **rules), SERVER, 5003), "device") == [0, 0, hits]


def test_a_host_hit_that_started_at_a_chunk_would_give_less() -> None:
    """Document 5's device hit ends at token 1,472, inside chunk 5, which ends at 1,536: 27,712 needs those 64 tokens."""
    passes = cyclic(VLLM, SERVER, 5003)
    assert passes[2][4].host == 4864 - 1472
    assert totals(passes, "host")[2] - 64 == 5 * 4864 + (4864 - 1536)


@pytest.mark.parametrize("output", [1, 8, 15])
def test_vllm_on_the_gpu_of_the_published_measurement(output: int) -> None:
    passes = cyclic(VLLM, CacheSizes(1345 * 16, 16, ROOM), 5025, output)
    assert totals(passes, "device") == [0, 0, 21_488]


def test_vllm_on_the_gpu_of_the_published_measurement_asks_lmcache_for_the_rest() -> None:
    """Its 50,243 prompt tokens are ten prompts that vary by a token or two; here the four read last have 5,025."""
    lengths = [5023, *[5024] * 5, *[5025] * 4]
    assert sum(lengths) == 50_243
    simulator = make_simulator(VLLM, CacheSizes(1345 * 16, 16, ROOM))
    for document in [*range(10), *range(10)]:
        assert simulator.read(prompt(document, lengths[document]), 8).device == 0
    device = sum(simulator.read(prompt(document, lengths[document]), 8).device for document in reversed(range(10)))
    assert (device, sum(lengths) - device) == (21_488, 28_755)
