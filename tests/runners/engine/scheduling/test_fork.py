"""Sharing KV: several answers to one prompt hold its blocks once, and copy a block only when they write to it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from kvbench.errors import UsageError
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.sampling import GREEDY, Pick, Sampling, choose
from kvbench.runners.engine.scheduling.allocation import reserve
from kvbench.runners.engine.scheduling.scheduler import Scheduler
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.runners.engine.driver import FakeEngine, check_answers, check_invariants, poison
from tests.runners.engine.model.test_sampling import by_transformers
from tests.runners.engine.reference import DEVICE, Reference, WatchedEngine, draw
from tests.runners.engine.scheduling.test_scheduler import tokens

SIZE = 4
SAMPLINGS = [Sampling(1.0, 11).child(number) for number in range(4)]


def blocks_of(tokens: int) -> int:
    return -(-tokens // SIZE)


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("prompt", [7, 8, 9, 1])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_blocks_held_are_the_prompts_and_a_private_tail_each(count: int, prompt: int, prefix_cache: bool) -> None:
    engine = FakeEngine(40, SIZE, prefix_cache=prefix_cache)
    poison(engine)
    sequences = engine.submit_samples("r", tokens(0, prompt), 9, SAMPLINGS[:count])
    engine.step()
    assert engine.pool.used_blocks == blocks_of(prompt)  # all answers have a token, none has written yet
    shared = prompt // SIZE
    while engine.is_busy:
        finished = engine.step()
        check_invariants(engine)
        if not finished:
            tails = sum(blocks_of(sequence.computed) - shared for sequence in sequences)
            assert engine.pool.used_blocks == shared + tails
    assert engine.counters.copied_blocks == (count - 1 if prompt % SIZE else 0)  # the last one to write has it to itself
    assert engine.counters.computed_tokens == prompt + count * 8
    check_answers(engine, sequences)
    assert engine.pool.free_blocks == 40


def test_a_copy_that_finds_no_block_makes_someone_give_way_first() -> None:
    engine = FakeEngine(3, SIZE, prefix_cache=False)
    other = engine.submit("other", tokens(50, 1), 3)
    first, second = engine.submit_samples("r", tokens(0, 7), 3, SAMPLINGS[:2])
    engine.step()
    assert engine.pool.free_blocks == 0
    engine.step()  # the second is preempted, so the first has the block to itself and needs no copy
    assert (other.preemptions, first.preemptions, second.preemptions) == (0, 0, 1)
    assert (first.computed, engine.counters.copied_blocks) == (8, 0)
    while engine.is_busy:
        engine.step()
        check_invariants(engine)
    check_answers(engine, [other, first, second])


def test_without_copy_on_write_a_fork_copies_every_block() -> None:
    for prompt in (7, 8):
        engine = FakeEngine(40, SIZE, copy_on_write=False)
        poison(engine)
        sequences = engine.submit_samples("r", tokens(0, prompt), 9, SAMPLINGS)
        engine.step()
        assert engine.pool.used_blocks == 4 * blocks_of(prompt)
        while engine.is_busy:
            engine.step()
            check_invariants(engine)
        assert engine.counters.copied_blocks == 3 * blocks_of(prompt)
        check_answers(engine, sequences)


def test_without_copy_on_write_one_that_finds_no_room_for_its_copy_waits() -> None:
    engine = FakeEngine(6, SIZE, copy_on_write=False, prefix_cache=False)
    sequences = engine.submit_samples("r", tokens(0, 7), 9, SAMPLINGS)
    engine.step()
    assert (len(engine.scheduler.running), len(engine.scheduler.waiting)) == (3, 1)
    while engine.is_busy:
        engine.step()
        check_invariants(engine)
    check_answers(engine, sequences)
    assert sequences[3].device_hit is None  # its prompt was computed again, behind its first token: not a hit, and not a first prefill


@pytest.mark.parametrize("options", [{}, {"budget": 5}, {"prefix_cache": False}, {"copy_on_write": False}, {"host": 64}], ids=str)
def test_every_sample_is_what_its_seed_gives_alone(model: Model, reference: Reference, options: dict[str, Any]) -> None:
    for length in (7, 16, 21):
        engine = WatchedEngine(model, **options)
        poison(engine)
        other = engine.submit("other", draw(9, 13), 10)
        samplings = [*SAMPLINGS[:3], GREEDY]
        sequences = engine.submit_samples("r", draw(length, length), 10, samplings)
        while engine.is_busy:
            engine.step()
        engine.drain()
        for sequence, sampling in zip([other, *sequences], [GREEDY, *samplings], strict=True):
            prompt = sequence.tokens[: sequence.prompt_tokens]
            assert sequence.tokens[sequence.prompt_tokens :] == by_transformers(reference, prompt, 10, sampling)
        assert len({tuple(sequence.tokens) for sequence in sequences}) == 4
        assert engine.pool.free_blocks == engine.pool.num_blocks


@pytest.mark.parametrize("swap", [None, 20, 400])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_samples_under_pressure_are_what_their_seeds_give_alone(
    model: Model, reference: Reference, swap: int | None, prefix_cache: bool
) -> None:
    engine = WatchedEngine(model, blocks=9, budget=6, swap_tokens=swap, prefix_cache=prefix_cache)
    poison(engine)
    sequences = engine.submit_samples("r", draw(5, 11), 14, SAMPLINGS)
    step = 0
    while engine.is_busy:
        engine.step()
        step += 1
        assert step < 300
    assert engine.counters.preemptions > 1
    for sequence, sampling in zip(sequences, SAMPLINGS, strict=True):
        assert sequence.tokens[11:] == by_transformers(reference, draw(5, 11), 14, sampling)
    assert engine.pool.free_blocks == 9


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("before", [0, 1, 2, 4])
def test_samples_may_be_cancelled_in_any_order(before: int, order: tuple[int, ...]) -> None:
    for kept in (0, 1):
        engine = FakeEngine(20, SIZE, budget=5)
        poison(engine)
        sequences = engine.submit_samples("r", tokens(0, 9), 12, SAMPLINGS[:3])
        for _ in range(before):
            engine.step()
        for number in order[: len(order) - kept]:
            engine.cancel(sequences[number])
            engine.step()
            check_invariants(engine)
        while engine.is_busy:
            engine.step()
            check_invariants(engine)
        check_answers(engine, sequences)
        assert sum(sequence.finished for sequence in sequences) == kept
        assert engine.pool.free_blocks == 20


@pytest.mark.parametrize("swap", [None, 400])
def test_a_preempted_sample_leaves_shared_blocks_to_the_others(swap: int | None) -> None:
    engine = FakeEngine(20, SIZE, swap_tokens=swap, prefix_cache=False)
    poison(engine)
    first, second, third = engine.submit_samples("r", tokens(0, 9), 12, SAMPLINGS[:3])
    for _ in range(3):
        engine.step()
    shared, tables = first.block_table[:2], [list(first.block_table), list(third.block_table)]
    assert [engine.pool.references[block] for block in shared] == [3, 3]
    engine.scheduler.preempt(second)
    engine.drain()  # a swap holds what it copies until it has arrived
    assert [engine.pool.references[block] for block in shared] == [2, 2]
    assert engine.pool.used_blocks == 2 + 2 * 1  # its tail alone is free
    assert [first.block_table, third.block_table] == tables
    while engine.is_busy:
        engine.step()
        check_invariants(engine)
    check_answers(engine, [first, second, third])
    assert engine.pool.free_blocks == 20


def test_a_cancelled_first_sample_computes_the_prompt_for_the_others_and_gives_no_token() -> None:
    engine = FakeEngine(20, SIZE, budget=5)
    first, second = engine.submit_samples("r", tokens(0, 9), 3, SAMPLINGS[:2])
    engine.step()
    engine.cancel(first)
    while engine.is_busy:
        engine.step()
    assert (first.output_tokens, second.output_tokens) == (0, 3)
    assert engine.counters.computed_tokens == 9 + 2
    check_answers(engine, [first, second])


def test_samples_of_one_token_end_where_they_begin() -> None:
    engine = FakeEngine(20, SIZE)
    sequences = engine.submit_samples("r", tokens(0, 9), 1, SAMPLINGS)
    assert engine.step() == sequences
    check_answers(engine, sequences)
    assert engine.pool.free_blocks == 20


@torch.inference_mode()
def continued(reference: Reference, sequence: Sequence, delivered: int, sampling: Sampling) -> list[int]:
    """What a fork says behind ``delivered`` tokens of its parent."""
    history = sequence.tokens[: sequence.prompt_tokens + delivered]
    for place in range(delivered, sequence.max_tokens):
        logits = reference.network(input_ids=torch.tensor([history], device=DEVICE)).logits[0, -1:]
        history = history + choose(logits, [Pick(0, sampling, place)])
    return history


@pytest.mark.parametrize("swap", [None, 400])
def test_a_fork_in_mid_answer_goes_on_by_itself(model: Model, reference: Reference, swap: int | None) -> None:
    engine = WatchedEngine(model, blocks=14, swap_tokens=swap, prefix_cache=False)
    poison(engine)
    parent = engine.submit("parent", draw(3, 10), 12)
    children: list[tuple[Sequence, int]] = []
    while engine.is_busy:
        engine.step()
        if parent.output_tokens in (1, 3, 6, 7) and len(children) < parent.output_tokens:
            children.append((engine.fork(parent, f"child {len(children)}", Sampling(1.0, len(children))), parent.output_tokens))
    assert len(children) >= 4
    for number, (child, delivered) in enumerate(children):
        assert child.tokens == continued(reference, child, delivered, Sampling(1.0, number))
        assert len(child.token_times) == child.max_tokens
    assert parent.tokens[10:] == reference.answer(draw(3, 10), 12).tokens
    assert engine.pool.free_blocks == 14


def test_a_fork_of_one_that_has_no_kv_waits_in_the_queue() -> None:
    engine = FakeEngine(20, SIZE)
    parent = engine.submit("parent", tokens(0, 9), 4)
    child = engine.fork(parent, "child")
    assert list(engine.scheduler.waiting) == [parent, child]
    while engine.is_busy:
        engine.step()
    check_answers(engine, [parent, child])
    with pytest.raises(ValueError, match="has ended"):
        engine.fork(parent, "late")


@pytest.mark.parametrize("copy_on_write", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_forks_hit_is_what_was_computed_of_its_prompt(steps: int, copy_on_write: bool) -> None:
    engine = FakeEngine(40, SIZE, budget=8, prefix_cache=False, copy_on_write=copy_on_write)
    parent = engine.submit("parent", tokens(0, 24), 6)
    for _ in range(steps):
        engine.step()
    child = engine.fork(parent, "child")
    while engine.is_busy:
        engine.step()
    computed = sum(min(start + count, 24) - start for batch in engine.batches for one, start, count in batch if one is child and start < 24)
    assert (child.device_hit, child.host_hit) == (24 - computed, 0) == (min(8 * steps, 24), 0)
    check_answers(engine, [parent, child])


@pytest.mark.parametrize("budget", [8, 2048])
def test_samples_and_beams_hit_the_whole_prompt(budget: int, model: Model) -> None:
    engine = WatchedEngine(model, budget=budget)
    first, *others = engine.submit_samples("r", draw(0, 23), 6, SAMPLINGS)
    searched, *beams = engine.submit_beams("b", draw(1, 23), 6, 3).sequences
    while engine.is_busy:
        engine.step()
    assert [(one.device_hit, one.host_hit) for one in (first, searched)] == [(0, 0)] * 2
    assert [(one.device_hit, one.host_hit) for one in (*others, *beams)] == [(23, 0)] * 5


def test_what_cannot_be_forked_is_refused() -> None:
    engine = FakeEngine(20, SIZE, allocation=reserve)
    with pytest.raises(UsageError, match="reservation keeps room for one output"):
        engine.submit_samples("r", tokens(0, 9), 4, SAMPLINGS)
    with pytest.raises(UsageError, match="0 samples"):
        engine.submit_samples("r", tokens(0, 9), 4, [])
    with pytest.raises(UsageError, match="reservation"):
        engine.fork(engine.submit("0", tokens(0, 9), 4), "child")
    [single] = engine.submit_samples("r", tokens(0, 9), 4, SAMPLINGS[:1])
    assert not single.followers


def wrong(model: Model, reference: Reference) -> bool:
    engine = WatchedEngine(model)
    sequences = engine.submit_samples("r", draw(5, 11), 14, SAMPLINGS)
    while engine.is_busy:
        engine.step()
    return any(
        sequence.tokens[11:] != by_transformers(reference, draw(5, 11), 14, sampling)
        for sequence, sampling in zip(sequences, SAMPLINGS, strict=True)
    )


def test_a_fork_that_writes_without_copying_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrong(model, reference)
    monkeypatch.setattr(Scheduler, "_shared", lambda scheduler, sequence: None)
    assert wrong(model, reference)


def test_a_block_that_is_exchanged_but_not_copied_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVStore, "copy_block", lambda store, source, target: None)
    assert wrong(model, reference)


def test_children_that_share_a_seed_are_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = Sequence.fork
    monkeypatch.setattr(Sequence, "fork", lambda parent, request_id, sampling, arrival: fork(parent, request_id, parent.sampling, arrival))
    assert wrong(model, reference)
