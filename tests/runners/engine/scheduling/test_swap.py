"""Recovery by swap and by recompute: no token changes, no block is reused under a copy, and what does not fit is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvbench.errors import Untrusted
from kvbench.runners.engine.kv.pending_transfers import PendingTransfer, PendingTransfers
from kvbench.runners.engine.kv.transfer import HostCopies, SwapCopy
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.sampling import GREEDY, Sampling
from kvbench.runners.engine.scheduling.preemption import least_computed, newest
from kvbench.runners.engine.scheduling.scheduler import Scheduler
from kvbench.runners.engine.scheduling.sequence import Sequence
from kvbench.runners.engine.scheduling.swap import Swap
from kvbench.testing.fake_transfer import DelayedTicket, DelayedTransfer
from tests.runners.engine.driver import FakeEngine, check_answers, check_invariants, poison
from tests.runners.engine.kv.test_transfer import Slow
from tests.runners.engine.reference import LOGITS, Reference, WatchedEngine, assert_equal, difference, draw
from tests.runners.engine.scheduling.test_scheduler import tokens

REQUESTS = [(draw(1, 11), 14, GREEDY), (draw(2, 18), 10, Sampling(0.9, 4)), (draw(3, 5), 16, GREEDY), (draw(4, 9), 9, Sampling(1.5, 4))]
BUDGET = 7  # every prompt but one is computed in chunks
RECOVERIES = {"recompute": None, "swap": 400}
BEFORE = Callable[[WatchedEngine, int], None]


def answers(engine: WatchedEngine, before: BEFORE = lambda engine, step: None) -> list[list[int]]:
    """What each request gets, all submitted at once, with something done before every step."""
    sequences = [engine.submit(str(number), *request) for number, request in enumerate(REQUESTS)]
    step = 0
    while engine.is_busy:
        before(engine, step)
        engine.step()
        step += 1
        assert step < 500
    engine.drain()
    assert engine.pool.free_blocks == engine.pool.num_blocks
    assert all(len(sequence.token_times) == sequence.max_tokens for sequence in sequences)
    return [sequence.tokens[sequence.prompt_tokens :] for sequence in sequences]


def ample(model: Model) -> list[list[int]]:
    return answers(WatchedEngine(model, blocks=128, budget=BUDGET))


@pytest.mark.parametrize("caches", [{"prefix_cache": False}, {"host": 64}], ids=["no reuse", "prefix cache and host tier"])
@pytest.mark.parametrize("swap", RECOVERIES.values(), ids=RECOVERIES.keys())
def test_a_preemption_before_any_step_changes_no_token(model: Model, swap: int | None, caches: dict[str, Any]) -> None:
    right = ample(model)
    in_prefill = 0
    for chosen in range(28):

        def preempt(engine: WatchedEngine, step: int, chosen: int = chosen) -> None:
            nonlocal in_prefill
            running = engine.scheduler.running
            if step == chosen and running:
                victim = running[chosen % len(running)]
                in_prefill += 0 < victim.computed < victim.prompt_tokens
                engine.scheduler.preempt(victim)

        engine = WatchedEngine(model, blocks=128, budget=BUDGET, swap_tokens=swap, **caches)
        poison(engine)
        assert answers(engine, preempt) == right
    assert in_prefill > 2


@pytest.mark.parametrize("caches", [{"prefix_cache": False}, {"host": 64}], ids=["no reuse", "prefix cache and host tier"])
@pytest.mark.parametrize("swap", RECOVERIES.values(), ids=RECOVERIES.keys())
def test_a_preemption_before_every_step_changes_no_token(model: Model, swap: int | None, caches: dict[str, Any]) -> None:
    def preempt(engine: WatchedEngine, step: int) -> None:
        running = engine.scheduler.running
        if len(running) > 1 or (running and swap is not None):  # one that is alone would begin again for ever
            engine.scheduler.preempt(running[-1] if swap is None else running[step % len(running)])

    engine = WatchedEngine(model, blocks=128, budget=BUDGET, swap_tokens=swap, **caches)
    poison(engine)
    assert answers(engine, preempt) == ample(model)
    assert engine.counters.preemptions > 15


@pytest.mark.parametrize("victim", [newest, least_computed])
@pytest.mark.parametrize("swap", [None, 0, 24, 400])
@pytest.mark.parametrize("slow", [False, True])
def test_outputs_in_any_small_pool_are_those_of_an_ample_one(model: Model, swap: int | None, victim: Any, slow: bool) -> None:
    right = ample(model)
    preemptions = 0
    for blocks, caches in ((7, {"prefix_cache": False}), (8, {"host": 48}), (9, {"prefix_cache": False, "host": 64}), (12, {})):
        options: dict[str, Any] = {"transfer": Slow()} if slow else {}
        engine = WatchedEngine(model, blocks=blocks, budget=BUDGET, swap_tokens=swap, victim=victim, **caches, **options)
        poison(engine)
        assert answers(engine) == right
        preemptions += engine.counters.preemptions
        if swap == 400:
            assert engine.counters.recomputed_tokens == 0
            assert engine.counters.swap_full == 0
            assert engine.counters.swapped_out_tokens >= engine.counters.swapped_in_tokens
        if swap is None:
            assert engine.counters.swapped_out_tokens == 0
    assert preemptions > 5


def test_logits_and_kv_after_a_swap_are_transformers(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, blocks=10, swap_tokens=400)
    sequences = engine.run([(draw(seed, 11), 20) for seed in range(3)], concurrency=3)
    assert engine.counters.swapped_in_tokens > 0
    assert_equal(reference, engine, sequences)


def slow_engine(blocks: int = 8, **policies: Any) -> tuple[FakeEngine, DelayedTransfer]:
    slow = Slow()
    engine = FakeEngine(blocks, transfer=slow, swap_tokens=400, **policies)
    poison(engine)
    return engine, slow.transfer


def run_to_the_end(engine: FakeEngine, sequences: list[Sequence]) -> None:
    for _ in range(200):
        if engine.is_busy:
            engine.step()
            check_invariants(engine)
    engine.drain()
    check_answers(engine, sequences)
    assert engine.pool.free_blocks == engine.pool.num_blocks
    assert isinstance(engine.scheduler.recovery, Swap)
    assert engine.scheduler.recovery.space.used_blocks == 0


def test_blocks_are_freed_only_once_the_copy_is_complete() -> None:
    engine, transfer = slow_engine(prefix_cache=False)
    sequence = engine.submit("0", tokens(0, 9), 5)
    engine.step()
    held = list(sequence.block_table)
    engine.scheduler.preempt(sequence)
    assert engine.pool.free_blocks == 8 - len(held)
    engine.churn(engine.pool.free_blocks)  # whoever comes now gets other blocks
    assert not any(engine.pool.is_free(block) for block in held)
    transfer.complete()
    engine.pending.collect()
    assert engine.pool.free_blocks == 8
    engine.churn(8)
    run_to_the_end(engine, [sequence])


def test_kv_comes_back_into_whatever_blocks_are_free() -> None:
    engine, _ = slow_engine(prefix_cache=False)
    sequence = engine.submit("0", tokens(0, 9), 5)
    engine.step()
    before = list(sequence.block_table)
    engine.scheduler.preempt(sequence)
    engine.drain()
    taken = engine.pool.allocate(8)
    engine.pool.release([block for block in taken if block not in before])
    while sequence.output_tokens < 2:
        engine.step()
    assert not set(before) & set(sequence.block_table)
    engine.pool.release(before)
    run_to_the_end(engine, [sequence])


def test_a_fork_of_one_that_is_on_its_way_back_shares_nothing_that_has_not_arrived() -> None:
    engine, _ = slow_engine(blocks=16, prefix_cache=False)
    a, b = engine.submit("0", tokens(0, 5), 9), engine.submit("1", tokens(100, 9), 5)
    engine.step()
    engine.scheduler.preempt(b)
    engine.step()
    assert b.loading is not None
    child = engine.fork(b, "child")
    assert [waiting.request_id for waiting in engine.scheduler.waiting] == ["child"]
    run_to_the_end(engine, [a, b, child])


def test_others_go_on_while_one_is_on_its_way_back() -> None:
    engine, transfer = slow_engine(prefix_cache=False)
    a, b = engine.submit("0", tokens(0, 5), 9), engine.submit("1", tokens(100, 9), 5)
    engine.step()
    engine.scheduler.preempt(b)
    engine.step()
    assert b.loading is not None
    for _ in range(3):
        engine.step()
        check_invariants(engine)
    assert (a.output_tokens, b.output_tokens) == (5, 1)
    transfer.complete()
    engine.step()
    assert (a.output_tokens, b.output_tokens, b.swap_slots) == (6, 2, [])
    run_to_the_end(engine, [a, b])


def test_with_nothing_else_to_run_a_step_waits_for_the_copy() -> None:
    engine, _ = slow_engine(prefix_cache=False)
    sequence = engine.submit("0", tokens(0, 9), 5)
    engine.step()
    engine.scheduler.preempt(sequence)
    engine.step()
    engine.step()
    assert sequence.output_tokens == 2
    run_to_the_end(engine, [sequence])


def test_one_preempted_while_it_comes_back_loses_nothing() -> None:
    engine, transfer = slow_engine(prefix_cache=False)
    a, b = engine.submit("0", tokens(0, 5), 9), engine.submit("1", tokens(100, 9), 5)
    engine.step()
    engine.scheduler.preempt(b)
    engine.step()
    coming = list(b.block_table)
    assert b.loading is not None
    engine.scheduler.preempt(b)
    assert not any(engine.pool.is_free(block) for block in coming)  # the copy still writes there
    check_invariants(engine)
    transfer.complete()
    run_to_the_end(engine, [a, b])
    assert engine.counters.recomputed_tokens == 0


def test_a_full_swap_space_falls_back_to_recompute_and_says_so() -> None:
    engine = FakeEngine(6, prefix_cache=False, swap_tokens=8)  # two blocks
    sequences = engine.run([(tokens(0, 7), 9), (tokens(100, 7), 9), (tokens(200, 5), 9)], concurrency=3)
    full = [event for event in engine.journal.events if event["event"] == "swap full"]
    assert engine.counters.swap_full == len(full) > 0
    assert engine.counters.recomputed_tokens > 0
    assert engine.counters.swapped_in_tokens > 0
    assert {event["request_id"] for event in full} <= {sequence.request_id for sequence in sequences if sequence.preemptions}


def test_a_preempted_request_leaves_shared_blocks_to_the_others() -> None:
    engine, transfer = slow_engine()
    shared = tokens(0, 8)
    a = engine.submit("0", [*shared, 1], 4)
    engine.step()
    b = engine.submit("1", [*shared, 2], 4)
    engine.step()
    assert a.block_table[:2] == b.block_table[:2]
    free = engine.pool.free_blocks
    engine.scheduler.preempt(b)
    transfer.complete()
    engine.pending.collect()
    assert engine.pool.free_blocks == free + 1
    assert [engine.pool.references[block] for block in a.block_table] == [1, 1, 1]
    engine.step()
    assert b.block_table[:2] == a.block_table[:2]  # found, not copied back
    run_to_the_end(engine, [a, b])
    assert engine.counters.swapped_in_tokens == 1


STATES = ["waiting", "prefilling", "decoding", "swapping out", "swapped", "restoring"]


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_cancelling_in_any_state_leaks_no_block(state: str, prefix_cache: bool) -> None:
    engine, transfer = slow_engine(16, budget=8, prefix_cache=prefix_cache, host=64)
    other, gone = engine.submit("0", tokens(0, 5), 9), engine.submit("1", tokens(100, 13), 5)
    for _ in range({"waiting": 0, "prefilling": 2}.get(state, 4)):
        engine.step()
    if state in ("swapping out", "swapped", "restoring"):
        transfer.complete()
        engine.scheduler.preempt(gone)
    if state in ("swapped", "restoring"):
        transfer.complete()
        engine.pending.collect()
    if state == "restoring":
        engine.churn(engine.pool.free_blocks)
        engine.step()
    seen = {
        "waiting": gone in engine.scheduler.waiting and not gone.swap_slots,
        "prefilling": gone in engine.scheduler.running and 0 < gone.computed < 13,
        "decoding": gone in engine.scheduler.running and gone.output_tokens > 0 and gone.loading is None,
        "swapping out": bool(gone.swap_slots) and any(held.sequence is gone for held in engine.pending.transfers),
        "swapped": bool(gone.swap_slots) and gone in engine.scheduler.waiting and not engine.pending.transfers,
        "restoring": gone.loading is not None,
    }
    assert seen[state]

    engine.cancel(gone)
    check_invariants(engine)
    engine.churn(engine.pool.free_blocks)
    delivered = gone.output_tokens
    engine.cancel(gone)  # again: nothing
    assert engine.counters.cancelled == 1
    run_to_the_end(engine, [other, gone])
    assert gone.output_tokens == delivered
    engine.cancel(other)  # it has ended: nothing
    assert (engine.counters.cancelled, other.cancelled) == (1, False)


@pytest.mark.parametrize("swap", RECOVERIES.values(), ids=RECOVERIES.keys())
def test_the_parts_of_every_stall_sum_to_the_gap_the_user_saw(swap: int | None) -> None:
    engine = FakeEngine(9, prefix_cache=False, budget=5, swap_tokens=swap, transfer=Slow())
    sequences = engine.run([(tokens(100 * number, 7), 20) for number in range(5)], concurrency=5)
    stalls = [(sequence, stall) for sequence in sequences for stall in sequence.stalls]
    assert stalls
    for sequence, stall in stalls:
        gap = sequence.token_times[stall.after_token] - sequence.token_times[stall.after_token - 1]
        parts = (stall.waiting_ms, stall.restoring_ms, stall.recomputing_ms, stall.first_step_ms)
        assert stall.total_ms == gap * 1e3 == sum(parts)
        assert min(parts) >= 0
        assert (stall.restoring_ms > 0) is (swap is not None)
    assert sum(len(sequence.stalls) for sequence in sequences) <= engine.counters.preemptions


@pytest.mark.parametrize(
    ("swap", "recomputing", "first_step"),
    [(None, True, False), (400, False, True)],
    ids=RECOVERIES.keys(),
)
def test_where_a_stalls_time_goes(model: Model, swap: int | None, recomputing: bool, first_step: bool) -> None:
    engine = WatchedEngine(model, blocks=10, prefix_cache=False, swap_tokens=swap)
    sequences = engine.run([(draw(seed, 11), 20) for seed in range(3)], concurrency=3)
    stalls = [stall for sequence in sequences for stall in sequence.stalls]
    assert stalls
    for stall in stalls:
        assert (stall.recomputing_ms > 0, stall.first_step_ms > 0, stall.restoring_ms > 0) == (recomputing, first_step, first_step)
        assert stall.waiting_ms > 0


def test_events_tell_a_swap_in_order_with_its_bytes() -> None:
    engine = FakeEngine(4, prefix_cache=False, swap_tokens=16)
    engine.run([(tokens(0, 7), 6), (tokens(100, 7), 6)], concurrency=2)
    life = [event for event in engine.take_events() if event.get("request_id") == "1"]
    assert [event["event"] for event in life] == ["admit", "preempt", "swap out", "resume", "swap in", "catch up", "finish"]
    assert [(event["tokens"], event["bytes"]) for event in life if str(event["event"]).startswith("swap")] == [(8, 128), (8, 128)]
    assert (life[3]["device"], life[3]["host"], life[3]["swap"]) == (0, 0, 8)
    assert (engine.counters.swapped_out_bytes, engine.counters.swapped_in_bytes) == (128, 128)
    assert engine.take_events() == []


def under_pressure(model: Model, **options: Any) -> tuple[WatchedEngine, list[Sequence]]:
    engine = WatchedEngine(model, blocks=6, prefix_cache=False, swap_tokens=400, transfer=Slow(), **options)
    poison(engine)
    return engine, engine.run([(draw(1, 7), 16), (draw(2, 9), 8)], concurrency=2)


def goes_wrong(model: Model, reference: Reference) -> bool:
    """Whether logits differ, or the engine itself ends the run, as KV that was never written is no number."""
    try:
        return difference(reference, *under_pressure(model)) > LOGITS
    except Untrusted:
        return True


def test_freeing_blocks_before_their_copy_is_complete_is_noticed(
    model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, sequences = under_pressure(model)
    assert engine.counters.swapped_in_tokens
    assert difference(reference, engine, sequences) < LOGITS

    def hasty(pending: PendingTransfers, held: PendingTransfer) -> None:
        pending._end(held)

    monkeypatch.setattr(PendingTransfers, "hold", hasty)
    assert goes_wrong(model, reference)


def test_one_block_restored_to_a_wrong_place_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    load = DelayedTransfer.load

    def misplaced(transfer: DelayedTransfer, copies: HostCopies) -> DelayedTicket:
        [copy] = copies
        assert isinstance(copy, SwapCopy)
        return load(transfer, [SwapCopy(copy.places[:1] * len(copy.places), copy.blocks)])

    monkeypatch.setattr(DelayedTransfer, "load", misplaced)
    assert difference(reference, *under_pressure(model)) > LOGITS


def test_a_copy_back_that_nobody_waits_for_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swap, "ready", lambda swap, sequence: True)
    assert goes_wrong(model, reference)


def test_a_resumed_request_that_samples_its_last_token_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    preempt = Scheduler.preempt

    def forgetful(scheduler: Scheduler, sequence: Sequence) -> None:
        if sequence.output_tokens:
            sequence.tokens.pop()
            sequence.computed = min(sequence.computed, len(sequence.tokens) - 1)
        preempt(scheduler, sequence)

    requests = [(tokens(0, 7), 6), (tokens(100, 7), 6)]
    FakeEngine(4, prefix_cache=False, swap_tokens=16).run(requests, concurrency=2)
    monkeypatch.setattr(Scheduler, "preempt", forgetful)
    with pytest.raises(AssertionError):
        FakeEngine(4, prefix_cache=False, swap_tokens=16).run(requests, concurrency=2)


def test_an_engine_that_could_never_get_on_says_so_instead_of_spinning() -> None:
    engine = FakeEngine(4)
    engine.submit("0", tokens(0, 9), 2)
    engine.pool.allocate(2)  # lost: nobody will ever return them
    with pytest.raises(RuntimeError, match="none can run"):
        engine.step()
