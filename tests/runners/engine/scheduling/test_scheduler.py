"""The scheduler's rules: what is freed and when, who is preempted, and that everything ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UsageError
from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import CpuTransfer
from kvbench.runners.engine.scheduling.allocation import on_demand, reserve
from kvbench.runners.engine.scheduling.preemption import VictimPolicy, least_computed, newest
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.scheduler import StepPlan
from kvbench.runners.engine.scheduling.sequence import Sequence
from kvbench.testing.fake_transfer import DelayedTransfer
from tests.runners.engine.driver import FakeEngine, check_answers, check_invariants, eviction_order, reuse_order
from tests.runners.engine.kv.test_pool_machine import FAST


class Hold(Recompute):
    """Stops a sequence and returns nothing."""

    def preempt(self, sequence: Sequence, pool: BlockPool) -> None:
        """Leaves everything as it is."""


def tokens(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def full_pool(recovery: Recompute) -> tuple[FakeEngine, Sequence, Sequence]:
    """The example of the article on preemption: 4 blocks of 4, A and B with 7 tokens each, then 8; no block is left."""
    engine = FakeEngine(4, recovery=recovery)
    a, b = engine.submit("0", tokens(0, 7), 6), engine.submit("1", tokens(100, 7), 6)
    engine.step()
    assert (a.computed, b.computed, engine.pool.free_blocks) == (7, 7, 0)
    engine.step()  # each has a slot left in its last block
    assert (a.computed, b.computed, engine.pool.free_blocks) == (8, 8, 0)
    return engine, a, b


def test_preempting_returns_the_blocks_and_the_older_one_takes_what_it_needs() -> None:
    engine, a, b = full_pool(Recompute())
    plan = engine.scheduler.schedule()
    assert plan.preempted == [b]
    assert (len(a.block_table), b.block_table, engine.pool.free_blocks) == (3, [], 1)
    assert [(work.sequence, work.start, work.count) for work in plan.work] == [(a, 8, 1)]


def test_what_is_rebuilt_twice_counts_twice_and_no_less() -> None:
    engine = FakeEngine(8, budget=4, prefix_cache=False)
    sequence = engine.submit("0", tokens(0, 12), 2)
    for _ in range(3):
        engine.step()
    assert (sequence.computed, engine.counters.recomputed_tokens) == (12, 0)
    engine.scheduler.preempt(sequence)
    engine.step()
    assert (sequence.computed, engine.counters.recomputed_tokens) == (4, 4)
    engine.scheduler.preempt(sequence)  # on its way back: 8 of the 12 it had are still to be rebuilt
    while engine.is_busy:
        engine.step()
    assert engine.counters.recomputed_tokens == 4 + 12


def test_stopping_a_request_without_returning_its_blocks_frees_nothing() -> None:
    engine, a, b = full_pool(Hold())
    engine.scheduler.preempt(b)
    assert engine.scheduler.running == [a]
    assert engine.pool.free_blocks == 0
    assert not engine.scheduler.schedule().work  # A cannot get on
    assert engine.pool.free_blocks == 0


def test_queueing_new_requests_frees_nothing() -> None:
    engine, a, b = full_pool(Recompute())
    tables = [*a.block_table], [*b.block_table]
    for number in range(2, 12):
        engine.submit(str(number), tokens(number, 5), 2)
    assert engine.pool.free_blocks == 0
    assert (a.block_table, b.block_table) == tables


def test_recompute_frees_exactly_the_unshared_blocks() -> None:
    engine = FakeEngine(8)
    shared = tokens(0, 8)
    a = engine.submit("0", [*shared, 1], 4)
    engine.step()
    b = engine.submit("1", [*shared, 2], 4)
    engine.step()
    assert (a.block_table[:2], b.device_hit) == (b.block_table[:2], 8)
    free = engine.pool.free_blocks
    engine.scheduler.preempt(b)
    assert engine.pool.free_blocks == free + 1
    assert [engine.pool.references[block] for block in a.block_table] == [1, 1, 1]
    check_invariants(engine)


def test_the_newest_gives_way_and_does_not_come_back_in_the_same_step() -> None:
    # Regression: the loop went on to the victim, computed it and took blocks for it, while it was in the queue.
    engine = FakeEngine(6)
    a, b, c = (engine.submit(str(number), tokens(100 * number, 7), 12) for number in range(3))
    engine.step()
    engine.step()
    assert engine.pool.free_blocks == 0
    plan = engine.scheduler.schedule()
    assert plan.preempted == [c]
    assert [work.sequence for work in plan.work] == [a, b]
    assert not plan.admitted
    assert (list(engine.scheduler.waiting), c.block_table) == ([c], [])
    assert (len(a.block_table), len(b.block_table), engine.pool.free_blocks) == (3, 3, 0)


def test_a_victim_waits_a_step_though_another_holds_what_it_lost() -> None:
    # B and C began alike in one step, so each has a copy of that block: after giving way, C finds B's and would fit at once.
    engine = FakeEngine(6)
    engine.submit("0", tokens(0, 7), 9)
    engine.submit("1", tokens(100, 5), 9)
    c = engine.submit("2", [*tokens(100, 4), 7, 7], 9)
    engine.step()
    engine.step()
    plan = engine.scheduler.schedule()
    assert plan.preempted == [c]
    assert not plan.admitted
    assert engine.scheduler.schedule().admitted[0].sequence is c


def test_a_preempted_request_goes_before_those_that_never_ran() -> None:
    engine, _, b = full_pool(Recompute())
    later = engine.submit("2", tokens(50, 3), 1)
    engine.step()
    assert list(engine.scheduler.waiting) == [b, later]


def test_delivered_tokens_are_neither_sampled_nor_sent_again() -> None:
    engine = FakeEngine(4)
    a, b = engine.run([(tokens(0, 7), 9), (tokens(100, 7), 9)], concurrency=2)  # run() checks the answers and their times
    assert (a.preemptions, b.preemptions) == (0, 1)
    assert engine.counters.computed_tokens == 15 + 15 + engine.counters.recomputed_tokens
    sampled = sum(start + count >= b.prompt_tokens for batch in engine.batches for sequence, start, count in batch if sequence is b)
    assert sampled == 9


REQUESTS = st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(1, 9)), min_size=1, max_size=7)


@settings(FAST, max_examples=80)
@given(
    requests=REQUESTS,
    concurrency=st.integers(1, 7),
    block_size=st.sampled_from([1, 2, 4]),
    budget=st.integers(1, 30),
    host=st.sampled_from([None, 0, 8, 64]),
    slow=st.booleans(),
    swap_tokens=st.sampled_from([None, 8, 200]),
    prefix_cache=st.booleans(),
    victim=st.sampled_from([newest, least_computed]),
)
def test_whatever_fits_alone_ends_and_is_preempted_a_bounded_number_of_times(
    requests: list[tuple[list[int], int]], concurrency: int, block_size: int, budget: int, host: int | None, slow: bool, **policies: Any
) -> None:
    blocks = [-(-(len(prompt) + count - 1) // block_size) for prompt, count in requests]
    engine = FakeEngine(max(blocks), block_size, budget, host, 4, 2, transfer=slow_transfer if slow else CpuTransfer, **policies)
    work = sum(len(prompt) + count for prompt, count in requests)
    sequences = engine.run(requests, concurrency, max_steps=20 + 3 * work * len(requests))
    assert engine.pool.free_blocks == engine.pool.num_blocks
    # Between two preemptions of one, another took a block or returned its own; each takes all of its own once an admission.
    takings = [(1 + sequence.preemptions) * (count + 1) for sequence, count in zip(sequences, blocks, strict=True)]
    for sequence, own in zip(sequences, takings, strict=True):
        assert sequence.preemptions <= sum(takings) - own


def slow_transfer(store: KVStore) -> DelayedTransfer:
    return DelayedTransfer(CpuTransfer(store))


def test_the_oldest_is_not_preempted_for_blocks_that_only_a_copy_holds() -> None:
    # Regression: a victim's blocks stayed with its stores, so everyone was preempted, nothing ran, and nobody waited for the copies.
    engine = FakeEngine(4, host=64, chunk=4, transfer=slow_transfer)
    a, _ = engine.run([(tokens(0, 5), 11), (tokens(100, 8), 2)], concurrency=2, max_steps=60)
    assert a.preemptions == 0


def test_with_nothing_running_the_queue_waits_for_the_copies_that_hold_its_blocks() -> None:
    engine = FakeEngine(3, host=64, chunk=4, transfer=slow_transfer)
    sequence = engine.submit("0", tokens(0, 9), 2)
    engine.step()
    engine.scheduler.preempt(sequence)
    engine.pool._key_of = [b""] * 3  # its blocks are held by the stores alone, and cannot be found again
    engine.pool._block_of.clear()
    for _ in range(5):
        engine.step()
    assert sequence.finished


def test_a_request_that_could_not_run_alone_is_refused_with_the_sizes() -> None:
    engine = FakeEngine(4)
    engine.submit("0", tokens(0, 10), 7)  # the last output token never has KV: 16 tokens, 4 blocks
    with pytest.raises(UsageError, match=r"^request 1: 10 prompt and 8 output tokens need 5 blocks of 4, the pool has 4 \(16 tokens\)"):
        engine.submit("1", tokens(0, 10), 8)
    assert len(engine.scheduler.waiting) == 1
    with pytest.raises(UsageError, match="holds no token"):
        engine.submit("2", [], 1)


def test_a_request_that_exactly_fills_the_pool_runs() -> None:
    engine = FakeEngine(4)
    [sequence] = engine.run([(tokens(0, 10), 7)])
    assert (sequence.output_tokens, engine.pool.peak_used) == (7, 4)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_a_prompt_cached_whole_still_computes_a_token(length: int) -> None:
    engine = FakeEngine(8)
    prompt = tokens(0, length)
    engine.run([(prompt, 1)])
    [sequence] = engine.run([(prompt, 1)])
    assert sequence.device_hit == (length - 1) // 4 * 4
    assert [count for batch in engine.batches[-1:] for _, _, count in batch] == [length - (sequence.device_hit or 0)]


def test_a_look_up_that_finds_no_room_changes_nothing() -> None:
    engine = FakeEngine(8, host=64, chunk=4)
    document = tokens(0, 13)
    engine.run([(document, 1)])
    engine.churn(engine.pool.free_blocks - 2)  # two blocks of the document stay, the third is only in the host
    engine.submit("0", tokens(500, 16), 9)
    engine.step()
    blocked = engine.submit("1", [*document, *tokens(600, 8)], 2)
    hit = engine.cache.look_up(blocked)
    assert (hit.device_tokens, hit.tokens) == (8, 12)
    assert engine.host is not None
    before = reuse_order(engine.pool), list(engine.pool.references), eviction_order(engine.host)
    plan = StepPlan(100)
    engine.scheduler._admit_waiting(plan)
    assert not plan.admitted
    assert (reuse_order(engine.pool), engine.pool.references, eviction_order(engine.host)) == before
    assert (list(engine.scheduler.waiting), blocked.block_table, blocked.device_hit) == ([blocked], [], None)


def test_a_free_hit_block_is_not_also_counted_as_room() -> None:
    engine = FakeEngine(4)
    engine.run([(tokens(0, 9), 1)])
    engine.submit("0", tokens(100, 3), 5)
    engine.step()  # takes the free block that is not full; two of the three left are hits
    engine.submit("1", [*tokens(0, 8), *tokens(50, 5)], 1)
    engine.step()
    assert len(engine.scheduler.waiting) == 1
    while engine.is_busy:
        engine.step()
        check_invariants(engine)


def test_budget_and_order() -> None:
    engine = FakeEngine(40, budget=10)
    a, b, c = (engine.submit(str(number), tokens(100 * number, 7), 3) for number in range(3))
    engine.step()
    engine.step()
    engine.step()
    assert [[(sequence, count) for sequence, _, count in batch] for batch in engine.batches] == [
        [(a, 7), (b, 3)],
        [(a, 1), (b, 4), (c, 5)],
        [(a, 1), (b, 1), (c, 2)],
    ]


@pytest.mark.parametrize("swap", [None, 400])
@pytest.mark.parametrize("victim", [newest, least_computed])
def test_requests_that_preempt_each_other_in_turn_all_end(victim: VictimPolicy, swap: int | None) -> None:
    engine = FakeEngine(10, prefix_cache=False, budget=7, victim=victim, swap_tokens=swap)
    sequences = engine.run([(tokens(100 * number, 3 + 5 * (number % 3)), 27) for number in range(6)], concurrency=6, max_steps=600)
    assert sum(sequence.preemptions > 0 for sequence in sequences) > 2
    assert sequences[0].preemptions == 0  # the oldest always gets on
    assert engine.counters.preemptions < 40


def test_the_victim_is_the_newest_or_the_one_with_the_least_kv() -> None:
    victims = {}
    for victim in (newest, least_computed):
        engine = FakeEngine(8, victim=victim)
        a, b, c = (engine.submit(str(number), tokens(100 * number, length), 9) for number, length in enumerate((11, 6, 9)))
        engine.step()
        engine.step()
        assert [sequence.computed for sequence in (a, b, c)] == [12, 7, 10]
        [victims[victim]] = [sequence.request_id for sequence in engine.scheduler.schedule().preempted]  # for A's fourth block
    assert victims == {newest: "2", least_computed: "1"}


def test_one_that_has_its_tokens_of_the_step_already_may_still_give_way() -> None:
    engine = FakeEngine(7, victim=least_computed)
    a, b, c = (engine.submit(str(number), tokens(100 * number, length), 9) for number, length in enumerate((5, 6, 11)))
    engine.step()
    engine.step()
    plan = engine.scheduler.schedule()
    assert plan.preempted == [b]  # for C's fourth block
    assert [work.sequence for work in plan.work] == [a, c]
    assert plan.budget == 2048 - 2


def test_one_that_came_back_is_in_its_place_by_arrival_and_is_the_oldest_once_those_before_it_ended() -> None:
    engine = FakeEngine(8, victim=least_computed, prefix_cache=False)
    lengths, counts = (11, 6, 9), (8, 20, 9)
    a, b, c = (engine.submit(str(number), tokens(100 * number, lengths[number]), counts[number]) for number in range(3))
    while not (a.finished or c.finished):
        engine.step()
        check_invariants(engine)
    assert b.preemptions == 1
    while b not in engine.scheduler.running:
        engine.step()
    assert engine.scheduler.running[0] is (b if a.finished else a)
    while engine.is_busy:
        engine.step()
        check_invariants(engine)
    assert b.preemptions == 1


def test_a_reservation_holds_room_for_the_whole_output_and_never_runs_short() -> None:
    requests = [(tokens(100 * number, 7), 10) for number in range(4)]  # 16 tokens, 4 blocks each
    most = {}
    for allocation in (on_demand, reserve):
        engine = FakeEngine(9, allocation=allocation)
        sequences = [engine.submit(str(number), *request) for number, request in enumerate(requests)]
        most[allocation] = 0
        while engine.is_busy:
            engine.step()
            running = engine.scheduler.running
            most[allocation] = max(most[allocation], len(running))
            if allocation is reserve:
                assert [len(sequence.block_table) for sequence in running] == [4] * len(running)
        check_answers(engine, sequences)
        assert (engine.counters.preemptions > 0) is (allocation is on_demand)
    assert most == {on_demand: 4, reserve: 2}


def test_a_reservation_is_used_block_by_block_with_chunks_and_hits() -> None:
    engine = FakeEngine(16, budget=5, allocation=reserve)
    head = tokens(0, 9)
    sequences = engine.run([(head, 3)])
    later = [([*head, *tokens(50 * number, 6)], 9) for number in range(1, 4)]
    sequences += [engine.submit(str(number), *request) for number, request in enumerate(later, start=1)]
    while engine.is_busy:
        engine.step()
    check_answers(engine, sequences)
    assert sequences[1].device_hit == 8
    assert engine.counters.preemptions == 0


def test_without_a_prefix_cache_nothing_on_the_device_is_found_again() -> None:
    for host, found in ((None, 0), (64, 8)):
        engine = FakeEngine(16, host=host, prefix_cache=False)
        _, again = engine.run([(tokens(0, 9), 3), (tokens(0, 9), 3)])
        assert (again.device_hit, again.host_hit) == (0, found)
