"""The link that is simulated: what a copy takes over it, who waits for whom, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.link_throttle import ThrottledTransfer
from kvbench.runners.engine.kv.transfer import Copy, Done, HostCopies, SwapCopy, Ticket, make_transfer
from kvbench.testing.fake_transfer import DelayedTransfer
from tests.runners.engine.driver import FakeEngine, check_answers, check_invariants, poison

RATE, BLOCK = 1000.0, 100
"""Bytes a second and a block: a tenth of a second each."""


class Time:
    """A clock that moves when somebody sleeps, or the test says so."""

    def __init__(self) -> None:
        self.now = 5.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Noted:
    """A transfer that notes what it is given and is done at once."""

    def __init__(self) -> None:
        self.given: list[tuple[str, HostCopies]] = []

    def store(self, copies: HostCopies) -> Ticket:
        self.given.append(("store", copies))
        return Done()

    def load(self, copies: HostCopies) -> Ticket:
        self.given.append(("load", copies))
        return Done()


def throttled() -> tuple[ThrottledTransfer, Noted, Time]:
    time, inner = Time(), Noted()
    return ThrottledTransfer(inner, RATE, BLOCK, time, time.sleep), inner, time


def test_a_copy_ends_when_its_bytes_have_passed_and_not_before() -> None:
    link, inner, time = throttled()
    ticket = link.store([SwapCopy([0, 1], [4, 5]), Copy(0, 0, [6])])
    assert inner.given == [("store", [SwapCopy([0, 1], [4, 5]), Copy(0, 0, [6])])]  # moved at once, and whole
    assert not ticket.done()
    time.now = 5.299
    assert not ticket.done()
    time.now = 5.3
    assert ticket.done()
    assert time.slept == []


def test_waiting_sleeps_what_is_left_and_after_that_nothing() -> None:
    link, _, time = throttled()
    ticket = link.load([SwapCopy([0, 1, 2], [4, 5, 6])])
    time.now += 0.1
    ticket.wait()
    ticket.wait()
    assert time.slept == pytest.approx([0.2])
    assert ticket.done()


def test_copies_of_one_direction_wait_for_each_other_and_the_other_direction_does_not() -> None:
    link, _, time = throttled()
    first, second = link.store([SwapCopy([0, 1], [4, 5])]), link.store([SwapCopy([2], [6])])
    back = link.load([SwapCopy([9], [7])])
    assert (first.due_s, second.due_s, back.due_s) == pytest.approx((5.2, 5.3, 5.1))
    time.now = 6.0
    assert link.store([SwapCopy([3], [8])]).due_s == pytest.approx(6.1)  # the link was idle: nothing is saved up


@pytest.mark.parametrize("place", [lambda blocks: SwapCopy([3], blocks), lambda blocks: Copy(3, 0, blocks)], ids=["swap", "tier"])
def test_a_load_begins_when_what_it_loads_has_arrived(place: Callable[[list[int]], Copy | SwapCopy]) -> None:
    link, _, _ = throttled()
    stored = link.store([SwapCopy([8], [1]), place([2])])
    assert link.load([place([5])]).due_s == pytest.approx(stored.due_s + 0.1)


def test_slots_of_the_tier_and_places_of_the_swap_space_are_not_mistaken_for_each_other() -> None:
    link, _, _ = throttled()
    link.store([SwapCopy([3], [1])])
    assert link.load([Copy(3, 0, [2])]).due_s == pytest.approx(5.1)


def test_a_copy_that_is_slower_than_the_link_is_waited_for() -> None:
    time, store = Time(), Noted()
    link = ThrottledTransfer(DelayedTransfer(store), RATE, BLOCK, time, time.sleep)
    ticket = link.store([SwapCopy([0], [1])])
    time.now += 1.0
    assert not ticket.done()
    ticket.wait()
    assert ticket.done()
    assert store.given != []


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), st.floats(0, 0.3)), max_size=20))
def test_no_direction_ever_moves_more_than_its_rate(copies: list[tuple[bool, list[int], float]]) -> None:
    link, _, time = throttled()
    due: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for stores, places, pause in copies:
        ticket = (link.store if stores else link.load)([SwapCopy(places, places)])
        took = len(places) * BLOCK / RATE
        assert ticket.due_s >= time.now + took - 1e-9
        due[stores].append((ticket.due_s - took, ticket.due_s))
        time.now += pause
    for turns in due.values():
        assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(turns))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 3), st.sampled_from([10.0, 1000.0, 1e9]), st.booleans())
def test_outputs_and_blocks_are_the_same_over_a_slow_link(seed: int, rate: float, tier: bool) -> None:
    time = Time()

    def slow(store: KVStore) -> ThrottledTransfer:
        return ThrottledTransfer(make_transfer(store), rate, store.block_bytes, time, time.sleep)

    engine = FakeEngine(9, 4, 8, host=32 if tier else None, chunk=8, transfer=slow, swap_tokens=64)
    poison(engine)
    asked = [engine.submit(f"r{number}", [seed * 31 + number * 5 + place for place in range(5)], 14) for number in range(4)]
    while engine.is_busy:
        engine.step()
        time.now += 0.05
        check_invariants(engine)
    engine.drain()
    check_answers(engine, asked)
    assert engine.counters.swapped_in_tokens > 0
