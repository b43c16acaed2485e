"""Two requests outgrow four blocks; one is preempted, and goes on where it was: the example of the article on preemption, step by step.

A block holds four tokens. A and B have prompts of 7 tokens; the physical names of blocks are free.
"""

from __future__ import annotations

import pytest

from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.runners.engine.reference import Reference, WatchedEngine, assert_equal, draw

A, B = draw(1, 7), draw(2, 7)
ANSWER = 6  # A's last output token never becomes an input: it ends with 7 + 5 = 12 tokens of KV


def until_b_gave_way(model: Model, swap: int | None, prefix_cache: bool) -> tuple[WatchedEngine, Sequence, Sequence]:
    """Figures 1 and 2 of the article."""
    engine = WatchedEngine(model, blocks=4, block_size=4, swap_tokens=swap, prefix_cache=prefix_cache)
    a, b = engine.submit("A", A, ANSWER), engine.submit("B", B, ANSWER)
    engine.step()
    assert (a.computed, b.computed, engine.pool.free_blocks) == (7, 7, 0)
    assert (len(a.block_table), len(b.block_table)) == (2, 2)
    engine.step()  # no block is free, and each has a slot left in its last one
    assert (a.computed, b.computed, engine.pool.free_blocks) == (8, 8, 0)
    assert (a.output_tokens, b.output_tokens) == (2, 2)  # x0 and x1 of each are delivered; x1 has no KV

    engine.step()
    assert (b.preemptions, b.block_table, b.computed) == (1, [], 0)
    assert (a.computed, len(a.block_table), engine.pool.free_blocks) == (9, 3, 1)
    return engine, a, b


def until_a_ended(engine: WatchedEngine, a: Sequence, b: Sequence) -> list[int]:
    """A gets to 12 tokens in three blocks, and B waits; returns B's history."""
    for computed in (10, 11):
        engine.step()
        assert (a.computed, len(a.block_table), list(engine.scheduler.waiting)) == (computed, 3, [b])
    assert engine.step() == [a]
    assert (len(engine.kv_of[a][0][0]), engine.pool.free_blocks) == (12, 4)
    assert (b.output_tokens, len(b.token_times)) == (2, 2)
    return list(b.tokens)


def test_pausing_b_frees_nothing(model: Model) -> None:
    engine = WatchedEngine(model, blocks=4, block_size=4)
    engine.submit("A", A, ANSWER)
    b = engine.submit("B", B, ANSWER)
    engine.step()
    engine.step()
    engine.scheduler.running.remove(b)  # left out of the batch, as figure 2 of the article has it first
    assert engine.pool.free_blocks == 0
    assert not engine.scheduler.schedule().work  # A cannot get on
    assert len(b.block_table) == 2


@pytest.mark.parametrize(
    ("prefix_cache", "found"),
    [(False, 0), (True, 4)],  # A took the tail of B's two blocks; the head is still found
    ids=["no reuse, as in the article", "prefix cache"],
)
def test_recompute(model: Model, reference: Reference, prefix_cache: bool, found: int) -> None:
    engine, a, b = until_b_gave_way(model, None, prefix_cache)
    history = until_a_ended(engine, a, b)
    assert len(history) == 9

    engine.step()
    assert engine.batches[-1] == [9 - found]  # in one go
    assert engine.counters.recomputed_tokens == 8 - found  # rebuilt; the one more is new
    assert (b.computed, len(b.block_table)) == (9, 3)
    assert b.tokens[:9] == history  # x0 and x1 are neither sampled nor sent again: x2 follows
    assert (b.output_tokens, len(b.token_times)) == (3, 3)

    while engine.is_busy:
        engine.step()
    assert_equal(reference, engine, [a, b])
    [stall] = b.stalls
    assert (stall.after_token, stall.restoring_ms, stall.first_step_ms) == (2, 0, 0)
    assert 0 < stall.recomputing_ms < stall.total_ms


@pytest.mark.parametrize(("prefix_cache", "found"), [(False, 0), (True, 4)], ids=["no reuse, as in the article", "prefix cache"])
def test_swap(model: Model, reference: Reference, prefix_cache: bool, found: int) -> None:
    engine, a, b = until_b_gave_way(model, 16, prefix_cache)
    assert (len(b.swap_slots), b.swapped_tokens, engine.counters.swapped_out_tokens) == (2, 8, 8)
    history = until_a_ended(engine, a, b)

    engine.step()
    assert engine.counters.swapped_in_tokens == 8 - found
    assert engine.batches[-1] == [1]
    assert engine.counters.recomputed_tokens == 0
    assert (b.computed, len(b.block_table), b.swap_slots) == (9, 3, [])
    assert b.tokens[:9] == history
    assert (b.output_tokens, len(b.token_times)) == (3, 3)

    while engine.is_busy:
        engine.step()
    assert_equal(reference, engine, [a, b])
    [stall] = b.stalls
    assert (stall.after_token, stall.recomputing_ms) == (2, 0)
    assert 0 < stall.restoring_ms + stall.first_step_ms < stall.total_ms
