"""Hits at all capacities at once, against LRU replayed with a plain list, and against the published hit rates of two real traces."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.simulator.block_trace import BlockTrace
from kvbench.runners.simulator.replay import replay
from kvbench.runners.simulator.stack_distance import hit_curve, smallest_capacities
from tests.traces import mooncake_file

SETTINGS = settings(deadline=None, derandomize=True, max_examples=300, suppress_health_check=[HealthCheck.too_slow])

ANY_BLOCKS = st.lists(st.lists(st.integers(0, 11), max_size=9, unique=True), max_size=14)
"""Ids without any structure: a block may be cached although one before it is not, where the leading run differs from single blocks."""

PROMPTS = st.lists(st.lists(st.integers(0, 1), max_size=6).map(tuple), max_size=20)


def prefix_ids(prompts: list[tuple[int, ...]]) -> list[list[int]]:
    """Ids as traces have them: one for each distinct prefix."""
    numbers: dict[tuple[int, ...], int] = {}
    return [[numbers.setdefault(prompt[: end + 1], len(numbers)) for end in range(len(prompt))] for prompt in prompts]


def brute_hits(requests: list[list[int]], capacity: int, tail_first: bool) -> list[list[bool]]:
    """Which accesses hit: the leading run of those held at the request's start. A list in order of recency is the cache."""
    held: list[int] = []
    hits = []
    for ids in requests:
        run = next((place for place, block in enumerate(ids) if block not in held), len(ids))
        hits.append([place < run for place in range(len(ids))])
        for block in reversed(ids) if tail_first else ids:
            held = [other for other in held if other != block] + [block]
            held = held[max(len(held) - capacity, 0) :]
    return hits


@SETTINGS
@given(ANY_BLOCKS | PROMPTS.map(prefix_ids), st.booleans())
def test_every_access_at_every_capacity_against_brute_force(requests: list[list[int]], tail_first: bool) -> None:
    trace = BlockTrace.of(requests)
    needed = smallest_capacities(trace, tail_first)
    curve = hit_curve(trace, tail_first)
    for capacity in range(16):
        flat = [hit for request in brute_hits(requests, capacity, tail_first) for hit in request]
        assert [bool(hit) for hit in needed <= capacity] == flat
        assert curve.hits_at(capacity) == sum(flat)


@SETTINGS
@given(ANY_BLOCKS | PROMPTS.map(prefix_ids), st.booleans(), st.integers(0, 14))
def test_replay_against_brute_force(requests: list[list[int]], tail_first: bool, capacity: int) -> None:
    assert replay(requests, capacity, tail_first) == sum(sum(hits) for hits in brute_hits(requests, capacity, tail_first))


def test_the_leading_run_is_not_single_blocks() -> None:
    trace = BlockTrace.of([[1, 2, 3], [9], [1, 2, 3]])
    assert smallest_capacities(trace, tail_first=False)[4:].tolist() == [4, 4, 4]  # block 1 is deepest and decides for all
    assert smallest_capacities(trace, tail_first=True)[4:].tolist() == [2, 3, 4]


def test_a_request_does_not_hit_its_own_blocks_and_is_looked_up_before_it_is_touched() -> None:
    trace = BlockTrace.of([[1, 2], [2, 1]])
    assert smallest_capacities(trace, tail_first=False)[2:].tolist() == [1, 2]  # touching 2 first would make 1 deeper still, or not


@pytest.mark.parametrize("requests", [[], [[]], [[], [], []]])
def test_a_trace_without_accesses(requests: list[list[int]]) -> None:
    curve = hit_curve(BlockTrace.of(requests), tail_first=True)
    assert (curve.hits_at(None), curve.hits_at(5), curve.rate_at(5)) == (0, 0, None)


def test_ids_of_any_size() -> None:
    big = [[-(2**62), 2**62, 5], [-(2**62), 2**62]]
    assert hit_curve(BlockTrace.of(big), tail_first=True).hits.tolist() == hit_curve(BlockTrace.of([[1, 2, 3], [1, 2]]), True).hits.tolist()


def test_a_block_twice_in_a_request_is_refused() -> None:
    with pytest.raises(UsageError, match="request 1 of the trace has block 7 twice"):
        hit_curve(BlockTrace.of([[1, 7], [7, 2, 7], [3]]), tail_first=False)


CAPACITIES = [None, 100_000, 50_000, 30_000, 10_000, 1_000]
PUBLISHED = {
    ("conversation", False): [0.3664, 0.3637, 0.3546, 0.3257, 0.2112, 0.0445],
    ("synthetic", False): [0.6396, 0.6396, 0.6396, 0.6242, 0.4235, 0.0825],
    ("conversation", True): [0.3664, 0.3637, 0.3546, 0.3257, 0.2116, 0.0445],
    ("synthetic", True): [0.6396, 0.6396, 0.6396, 0.6242, 0.4239, 0.0841],
}
"""Counted by a script of its own, with the leading-run rule; head first (False) and tail first (True)."""


@pytest.fixture(scope="module", params=["conversation", "synthetic"])
def mooncake(request: pytest.FixtureRequest) -> tuple[str, BlockTrace]:
    with mooncake_file(request.param).open(encoding="utf-8") as lines:
        return request.param, BlockTrace.of(json.loads(line)["hash_ids"] for line in lines)


@pytest.mark.parametrize("tail_first", [False, True])
def test_published_hit_rates_at_all_capacities(mooncake: tuple[str, BlockTrace], tail_first: bool) -> None:
    name, trace = mooncake
    curve = hit_curve(trace, tail_first)
    assert [round(curve.rate_at(capacity) or 0.0, 4) for capacity in CAPACITIES] == PUBLISHED[name, tail_first]
    assert np.all(np.diff(curve.hits) >= 0)


@pytest.mark.parametrize("tail_first", [False, True])
def test_published_hit_rates_replayed(mooncake: tuple[str, BlockTrace], tail_first: bool) -> None:
    name, trace = mooncake
    requests = list(trace.requests())
    hits = {capacity: replay(requests, capacity or trace.accesses, tail_first) for capacity in CAPACITIES}
    assert [round(count / trace.accesses, 4) for count in hits.values()] == PUBLISHED[name, tail_first]
    curve = hit_curve(trace, tail_first)
    assert all(count == curve.hits_at(capacity) for capacity, count in hits.items())
