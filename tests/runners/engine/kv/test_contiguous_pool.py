"""Reservation in one piece: the pool that gives runs, and the scheduler that waits for one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.engine.kv.contiguous_pool import ContiguousPool
from kvbench.runners.engine.model.sampling import GREEDY
from kvbench.runners.engine.scheduling.allocation import reserve
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.runners.engine.driver import FakeEngine, check_answers, check_invariants

FAST = settings(deadline=None, derandomize=True, max_examples=100)


def runs_of(held: set[int], blocks: int) -> list[tuple[int, int]]:
    """Free runs as a map of the pool shows them, found block by block."""
    found: list[tuple[int, int]] = []
    for block in range(blocks):
        if block in held:
            continue
        if found and found[-1][1] == block:
            found[-1] = (found[-1][0], block + 1)
        else:
            found.append((block, block + 1))
    return found


@settings(FAST)
@given(st.integers(1, 24), st.data())
def test_runs_are_first_fit_disjoint_and_within_bounds_and_freed_ones_join(blocks: int, data: st.DataObject) -> None:
    pool = ContiguousPool(blocks)
    tables: list[list[int]] = []
    held: set[int] = set()
    for _ in range(data.draw(st.integers(1, 40))):
        free = runs_of(held, blocks)
        longest = max((end - start for start, end in free), default=0)
        assert pool.room == longest
        release = data.draw(st.booleans())
        if tables and release:
            table = tables.pop(data.draw(st.integers(0, len(tables) - 1)))
            pool.release(table)
            held -= set(table)
        elif longest:
            count = data.draw(st.integers(1, longest))
            first = next(start for start, end in free if end - start >= count)
            table = pool.allocate(count)
            assert table == list(range(first, first + count))
            assert not held & set(table)
            tables.append(table)
            held |= set(table)
        assert pool.free_runs == runs_of(held, blocks)
        assert (pool.free_blocks, pool.used_blocks) == (blocks - len(held), len(held))
        assert [pool.is_free(block) for block in range(blocks)] == [block not in held for block in range(blocks)]


def test_enough_blocks_that_are_no_run_are_no_room() -> None:
    pool = ContiguousPool(4)
    tables = [pool.allocate(1) for _ in range(4)]
    pool.release(tables[0])
    pool.release(tables[2])
    assert (pool.free_blocks, pool.room) == (2, 1)
    with pytest.raises(ValueError, match="2 blocks asked for, there is room for 1"):
        pool.allocate(2)
    pool.release(tables[1])
    assert pool.allocate(3) == [0, 1, 2]


def test_a_block_stays_out_of_the_free_runs_until_its_last_holder_lets_go() -> None:
    pool = ContiguousPool(3)
    table = pool.allocate(2)
    pool.acquire(table[:1])
    pool.release(table)
    assert pool.free_runs == [(1, 3)]
    pool.release(table[:1])
    assert pool.free_runs == [(0, 3)]


def test_nothing_in_it_is_found_again() -> None:
    pool = ContiguousPool(2)
    [block] = pool.allocate(1)
    pool.publish(block, b"key")
    assert pool.find(b"key") is None


def usages(engine: FakeEngine) -> list[dict[str, object]]:
    return [event for event in engine.take_events() if event["event"] == "usage"]


def reserved_engine(blocks: int, size: int = 4, tokens: int | None = None) -> FakeEngine:
    return FakeEngine(blocks, size, reserve_tokens=tokens, allocation=reserve, contiguous=True, prefix_cache=False, sample_usage=True)


def test_of_2048_reserved_slots_a_request_of_100_wastes_1948() -> None:
    engine = reserved_engine(128, 16, 2048)
    engine.run([([1] * 60, 41)])  # the last of 41 output tokens has no KV
    events = engine.take_events()
    [end] = [event for event in events if event["event"] == "finish"]
    assert (end["slots"], end["used"]) == (2048, 100)
    steps = [event for event in events if event["event"] == "usage"]
    assert [step["used"] for step in steps] == list(range(60, 101))
    for step in steps:
        assert (step["reserved"], step["unneeded"], step["free"], step["needed"]) == (2048, 1948, 0, None)


@settings(FAST)
@given(
    size=st.integers(1, 9),
    requests=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=8),
    spare=st.integers(0, 12),
    budget=st.integers(1, 16),
)
def test_paged_wastes_less_than_a_block_a_request_at_every_step(
    size: int, requests: list[tuple[int, int]], spare: int, budget: int
) -> None:
    blocks = max(-(-(prompt + output - 1) // size) for prompt, output in requests) + spare
    engine = FakeEngine(blocks, size, budget, prefix_cache=False, sample_usage=True)
    sequences = [engine.submit(str(number), [number] * prompt, output) for number, (prompt, output) in enumerate(requests)]
    while engine.is_busy:
        engine.step()
        for sequence in engine.scheduler.running:
            assert 0 <= len(sequence.block_table) * size - sequence.computed < size
    for event in usages(engine):
        assert event["reserved"] - event["used"] <= (size - 1) * event["running"]  # type: ignore[operator]
        assert event["room"] == event["free"]
    check_answers(engine, sequences)


def test_the_next_request_waits_for_a_run_although_enough_is_free() -> None:
    engine = reserved_engine(4)
    ends = {"a": 1, "b": 4, "c": 1, "d": 4}  # output tokens; each fits a block
    for name, tokens in ends.items():
        engine.submit(name, [1], tokens)
    wide = engine.submit("wide", [1] * 5, 2)  # two blocks
    engine.step()  # a and c end in it, and leave a hole each
    assert [sequence.request_id for sequence in engine.scheduler.running] == ["b", "d"]
    engine.step()
    told = usages(engine)[-1]
    assert (told["needed"], told["free"], told["room"], told["waiting"], told["running"]) == (8, 8, 4, 1, 2)
    while "b" in {sequence.request_id for sequence in engine.scheduler.running}:
        assert wide not in engine.scheduler.running
        engine.step()
    engine.step()
    assert wide.block_table == [0, 1]


@settings(FAST)
@given(
    requests=st.lists(st.tuples(st.integers(1, 16), st.integers(1, 10)), min_size=1, max_size=10),
    to_the_maximum=st.booleans(),
    cancelled=st.sets(st.integers(0, 9)),
    budget=st.integers(1, 20),
)
def test_reserved_requests_hold_one_run_each_end_right_and_leave_none_behind(
    requests: list[tuple[int, int]], to_the_maximum: bool, cancelled: set[int], budget: int
) -> None:
    engine = FakeEngine(
        14, 2, budget, allocation=reserve, reserve_tokens=25 if to_the_maximum else None, contiguous=True, prefix_cache=False
    )
    sequences: list[Sequence] = [engine.submit(str(number), [number] * prompt, output) for number, (prompt, output) in enumerate(requests)]
    for step in range(1000):
        if not engine.is_busy:
            break
        engine.step()
        if step in cancelled and step < len(sequences):
            engine.cancel(sequences[step])
        check_invariants(engine)
        for sequence in engine.scheduler.running:
            table = sequence.block_table
            assert table == list(range(table[0], table[0] + -(-(25 if to_the_maximum else sequence.longest) // 2)))
    assert not engine.is_busy
    check_answers(engine, sequences)
    assert engine.counters.preemptions == 0
    assert engine.pool.free_blocks == engine.pool.room == 14


def test_what_a_reservation_cannot_hold_is_refused_at_submit() -> None:
    engine = reserved_engine(8, 4, 16)
    with pytest.raises(UsageError, match=r"^request x: 10 prompt and 8 output tokens exceed the 16 that are reserved for each request"):
        engine.submit("x", [1] * 10, 8)
    with pytest.raises(UsageError, match="need 5 blocks of 4, the pool has 4"):
        reserved_engine(4, 4, 17).submit("x", [1], 1)
    parent = engine.submit("y", [1] * 10, 7)
    engine.step()
    with pytest.raises(UsageError, match="a reservation keeps room for one output"):
        engine.fork(parent, "z", GREEDY)
