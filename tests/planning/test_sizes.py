"""The smallest pools and tiers: the design's known values, the closed forms, and a scan of every size on small workloads."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.experiments.cyclic.workload import Cyclic, make_cyclic
from kvbench.planning.config import PlanConfig
from kvbench.planning.curve import curve
from kvbench.planning.planned_workload import PlannedPass, PlannedWorkload, plan_workload
from kvbench.planning.sizes import Pools, smallest, smallest_hosts, smallest_pools
from kvbench.runners.profiles import ENGINE, PROFILES, Profile
from kvbench.runners.simulator.simulator import Footprint
from kvbench.workloads.passes import Pass
from tests.runners.policies import registered

BLOCK_PROFILES = ("engine", "vllm")


def of_profile(profile: str, block_size: int = 16, chunk_tokens: int = 256, docs: int = 10, **options: Any) -> PlannedWorkload:
    config = PlanConfig.model_validate(options)
    return plan_workload(PROFILES[profile], make_cyclic(config, docs, 2048, Path("none")), block_size, chunk_tokens)


def test_whole_documents_are_all_or_nothing_at_50_110() -> None:
    pools = smallest_pools(of_profile("documents", question_tokens=0))
    assert (pools.hits_at_all, pools.hits_everything) == (50_110, 50_110)


@pytest.mark.parametrize(("profile", "reserved"), [("engine", 0), ("vllm", 1)])
@pytest.mark.parametrize("docs", [2, 10])
def test_blocks_follow_the_closed_form(profile: str, reserved: int, docs: int) -> None:
    """Each hits max(0, min(b, C − (N−1)·b)), C being less by what is reserved and by the last request's block that is not full."""
    blocks = 5024 // 16
    pools = smallest_pools(of_profile(profile, docs=docs))
    shift = reserved + 1
    assert pools.hits_at_all == (docs - 1) * blocks + 1 + shift
    assert pools.hits_everything == docs * blocks + shift


def test_an_output_that_fills_blocks_takes_pool_too() -> None:
    """5,025 + 99 tokens are 320 full blocks and one that is not. The oldest document may lose its output's six, which go first."""
    assert smallest_pools(of_profile("engine", output_tokens=100)).hits_everything == 9 * 320 + 314 + 1


@pytest.mark.parametrize(("output", "blocks"), [(16, 315), (17, 316)])
def test_the_last_output_token_takes_no_room(output: int, blocks: int) -> None:
    """5,025 + 15 tokens are 315 blocks exactly."""
    assert of_profile("engine", output_tokens=output).smallest_pool == blocks
    assert of_profile("vllm", output_tokens=output).smallest_pool == blocks + 1


@pytest.mark.parametrize(("profile", "tokens"), [("engine", 48_640), ("vllm", 60_928), ("documents", 50_250)])
def test_the_tier_that_holds_ten_documents(profile: str, tokens: int) -> None:
    """19 chunks of 256 for each of ten; LMCache evicts when 80 % are used, so 190 chunks need 238: 0.8 · 237 is not above 190."""
    planned = of_profile(profile)
    hosts = smallest_hosts(planned, 21_520 // planned.unit)
    assert hosts.hits_everything * planned.chunk == hosts.keeps_everything * planned.chunk == tokens
    assert hosts.exact


def test_below_the_size_that_never_evicts_lmcache_is_an_estimate() -> None:
    """Half of the documents are never read again, so a tier that evicts those would do, if it evicts at the right moment."""
    hosts = smallest_hosts(of_profile("vllm", reuse=0.5), 1345)
    assert hosts.hits_everything < hosts.keeps_everything
    assert not hosts.exact


def test_nothing_is_read_again() -> None:
    planned = of_profile("vllm", reuse=0.0)
    pools = smallest_pools(planned)
    assert (pools.hits_at_all, pools.hits_everything) == (None, None)
    assert smallest_hosts(planned, 1345).hits_everything == 0


def test_everything_fits_and_no_tier_is_needed() -> None:
    assert smallest_hosts(of_profile("engine"), 4000).hits_everything == 0


@pytest.fixture
def fifo() -> Iterator[Profile]:
    """kvbench's own engine with first in, first out in both tiers."""
    assert ENGINE.device is not None
    assert ENGINE.host is not None
    with registered():
        yield replace(ENGINE, device=replace(ENGINE.device, policy="fifo"), host=replace(ENGINE.host, policy="fifo"))


def test_sizes_are_not_searched_under_a_policy_without_inclusion(fifo: Profile) -> None:
    workload = make_cyclic(PlanConfig.model_validate({}), 3, 2048, Path("none"))
    planned = plan_workload(fifo, workload, 16, 256)
    with pytest.raises(UsageError, match=r"^the device pool evicts by fifo, .* \(no inclusion property\), .*; use policy lru, or simulate"):
        smallest_pools(planned)
    with pytest.raises(UsageError, match=r"^the host tier evicts by fifo, "):
        smallest_hosts(planned, planned.smallest_pool)
    of_tier = plan_workload(replace(fifo, device=ENGINE.device), workload, 16, 256)
    assert smallest_pools(of_tier) == smallest_pools(plan_workload(ENGINE, workload, 16, 256))
    with pytest.raises(UsageError, match=r"^the host tier evicts by fifo, "):
        smallest_hosts(of_tier, of_tier.smallest_pool)


def test_a_curve_is_simulated_size_by_size_under_any_policy(fifo: Profile) -> None:
    planned = plan_workload(fifo, make_cyclic(PlanConfig.model_validate({}), 3, 2048, Path("none")), 16, 256)
    rows = curve(planned, planned.smallest_pool, Pools(None, None), 0, None, 1, (1, planned.roomy_pool * 16))
    prompt = sum(footprint.prompt_tokens for footprint in planned.footprints)
    assert {row.lru_rate for row in rows} == {planned.read(row.pool.units, None).device_hits / prompt for row in rows}
    assert rows[-1].lru_rate == rows[-1].best_rate


@given(st.integers(0, 100), st.integers(0, 100))
def test_the_search_finds_the_first(first: int, more: int) -> None:
    assert smallest(0, first + more, lambda size: size >= first) == first


workloads = st.fixed_dictionaries(
    {
        "docs": st.integers(1, 5),
        "doc_tokens": st.integers(1, 30),
        "question_tokens": st.integers(0, 5),
        "output_tokens": st.integers(1, 12),
        "overlap": st.sampled_from([0.0, 0.3, 0.7]),
        "reuse": st.sampled_from([1.0, 0.5, 0.0]),
        "question": st.sampled_from(["same", "vary"]),
        "seed": st.integers(0, 3),
        "passes": st.sampled_from(["sequential,repeat,reverse", "sequential,shuffle,repeat", "sequential,zipf:1.2", "reverse,reverse"]),
    }
)


def small(profile: str, options: dict[str, Any]) -> PlannedWorkload:
    dropped = {"question"} if not options["question_tokens"] else set()
    block = 3
    return of_profile(profile, block, 2 * block, **{name: value for name, value in options.items() if name not in dropped})


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*BLOCK_PROFILES, "documents"]), workloads)
def test_no_smaller_pool_has_the_property(profile: str, options: dict[str, Any]) -> None:
    planned = small(profile, options)
    low, high, index = planned.smallest_pool, planned.roomy_pool, planned.headline
    hits = {pool: planned.read(pool, None).device(index) for pool in range(low, high + 1)}
    pools, most = smallest_pools(planned), hits[high]
    assert pools.hits_at_all == next((pool for pool in hits if hits[pool] > 0), None)
    assert pools.hits_everything == (next(pool for pool in hits if hits[pool] == most) if most else None)
    assert list(hits.values()) == sorted(hits.values())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*BLOCK_PROFILES, "documents"]), workloads, st.integers(0, 20))
def test_no_smaller_tier_has_the_property(profile: str, options: dict[str, Any], extra: int) -> None:
    planned = small(profile, options)
    pool = planned.smallest_pool + extra
    hosts = smallest_hosts(planned, pool)
    hits = [planned.read(pool, host).hits for host in range(hosts.keeps_everything + 3)]
    assert hits[hosts.hits_everything] == hits[-1]
    assert hosts.hits_everything == 0 or hits[hosts.hits_everything - 1] < hits[-1]
    if planned.watermark == 1:
        assert hosts.hits_everything == hits.index(hits[-1])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BLOCK_PROFILES), workloads, st.integers(0, 20))
def test_the_tier_that_keeps_everything_is_certain_and_as_good_as_any(profile: str, options: dict[str, Any], extra: int) -> None:
    planned = small(profile, options)
    pool, roomy = planned.smallest_pool + extra, planned.roomy_host
    if roomy:
        assert planned.read(pool, roomy).exact
    assert planned.read(pool, roomy).hits == planned.read(pool, 10 * roomy + 10).hits


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BLOCK_PROFILES), workloads, st.integers(0, 20))
def test_no_policy_is_beaten_by_lru(profile: str, options: dict[str, Any], extra: int) -> None:
    planned = small(profile, options)
    pool = planned.smallest_pool + extra
    best = planned.best_hits(pool)
    assert best is not None
    assert best >= planned.read(pool, None).device_hits


class Nested:
    """Documents that begin alike: a longer one goes on where a shorter one ends."""

    names: list[str] | None = None

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def tokens(self, doc_id: int) -> list[int]:
        return list(range(self._lengths[doc_id]))

    def length(self, doc_id: int) -> int:
        return self._lengths[doc_id]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(BLOCK_PROFILES), st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 8), st.integers(0, 10))
def test_no_policy_is_beaten_by_lru_where_one_prompt_leaves_what_only_another_can_find(
    profile: str, lengths: list[int], output: int, extra: int
) -> None:
    order = list(range(len(lengths)))
    workload = Cyclic(Nested(lengths), [Pass("sequential", 0, order), Pass("reverse", 1, order[::-1])], [[], []], output)
    planned = plan_workload(PROFILES[profile], workload, 3, 6)
    for pool in (planned.smallest_pool + extra, planned.roomy_pool):
        best = planned.best_hits(pool)
        assert best is not None
        assert best >= planned.read(pool, None).device_hits
    assert planned.best_hits(planned.roomy_pool) == planned.read(planned.roomy_pool, None).device_hits


def whole_if_read_next(planned: PlannedWorkload, pool: int) -> int:
    """Of how many documents, each read again right after the first pass, as much is found as in a pool without limits."""
    first = planned.passes[0]

    def found(request: tuple[int, Footprint], pool: int) -> int:
        again = copy(planned)
        again.passes = [first, PlannedPass("next", "next", (request,))]
        return again.read(pool, None).device(1)

    return len({request[0] for request in first.requests if found(request, pool) == found(request, planned.roomy_pool)})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*BLOCK_PROFILES, "documents"]),
    workloads,
    st.sampled_from(["sequential", "zipf:0.8", "zipf:1.5"]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 40),
)
def test_documents_held_are_those_that_would_hit_whole_if_read_next(
    profile: str, options: dict[str, Any], order: str, overlap: float, extra: int
) -> None:
    planned = small(profile, options | {"passes": f"{order},repeat", "overlap": overlap, "reuse": 1.0, "question": "same"})
    pool = planned.smallest_pool + extra
    assert planned.documents_in(pool) == whole_if_read_next(planned, pool)


@pytest.mark.parametrize("profile", BLOCK_PROFILES)
def test_what_a_document_read_twice_leaves_twice_takes_room(profile: str) -> None:
    """Documents of four blocks exactly: read again, the last one is computed again, and vLLM keeps both."""
    planned = of_profile(profile, doc_tokens=64, question_tokens=0, passes="zipf:1.1,repeat")
    for pool in range(planned.smallest_pool, planned.roomy_pool):
        assert planned.documents_in(pool) == whole_if_read_next(planned, pool)


@pytest.mark.parametrize(("profile", "held"), [("engine", 4), ("vllm", 4), ("documents", 4)])
def test_the_pool_of_the_published_measurement_holds_four_documents(profile: str, held: int) -> None:
    planned = of_profile(profile)
    assert planned.documents_in(21_520 // planned.unit) == held
