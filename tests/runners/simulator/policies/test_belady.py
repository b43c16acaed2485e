"""Belady's optimum: as good as the best of all possible evictions, and never worse than LRU."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.runners.simulator.replay import most_hits, replay
from tests.runners.simulator.test_stack_distance import prefix_ids

SETTINGS = settings(deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.too_slow])

TINY = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3).map(tuple), min_size=1, max_size=8).map(prefix_ids)
LONGER = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=30).map(prefix_ids)


def brute_most_hits(requests: list[list[int]], capacity: int) -> int:
    """Tries every choice of what is kept beside each request's own blocks, which stay."""

    @cache
    def best(index: int, held: frozenset[int]) -> int:
        if index == len(requests):
            return 0
        ids = requests[index]
        hits = next((place for place, block in enumerate(ids) if block not in held), len(ids))
        others = held - set(ids)
        room = min(capacity - len(ids), len(others))
        if room < 0:  # larger than the cache: any part of it may stay
            return hits + max(best(index + 1, frozenset(kept)) for kept in combinations(ids, capacity))
        return hits + max(best(index + 1, frozenset(kept) | set(ids)) for kept in combinations(sorted(others), room))

    return best(0, frozenset())


@SETTINGS
@given(TINY, st.integers(0, 6))
def test_no_choice_of_evictions_hits_more(requests: list[list[int]], capacity: int) -> None:
    assert most_hits(requests, capacity) == brute_most_hits(requests, capacity)


@SETTINGS
@given(LONGER, st.integers(0, 40), st.booleans())
def test_lru_never_hits_more(requests: list[list[int]], capacity: int, tail_first: bool) -> None:
    assert replay(requests, capacity, tail_first) <= most_hits(requests, capacity)


def test_cyclic_reading_where_lru_hits_nothing() -> None:
    requests = [[document] for _ in range(3) for document in range(10)]
    assert replay(requests, 4, tail_first=True) == 0
    assert most_hits(requests, 4) == brute_most_hits(requests, 4) == 8
