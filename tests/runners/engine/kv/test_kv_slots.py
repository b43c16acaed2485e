"""Where KV lies: the block-address formula of the article on paging, and that it is what the attention reads."""

from __future__ import annotations

import random

import pytest

from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.model.attention import Span, like_lengths, slots_of
from kvbench.runners.engine.model.model import Model
from tests.runners.engine.reference import KV, LOGITS, Reference, WatchedEngine, assert_equal, difference, draw, kv_difference


def test_the_slot_of_a_token_is_block_table_times_b_plus_offset() -> None:
    # Blocks of 4; logical blocks 0, 1, 2 in physical blocks 7, 2, 5.
    assert slots_of(Span(0, 10, 0, [7, 2, 5]), 4) == [28, 29, 30, 31, 8, 9, 10, 11, 20, 21]
    assert slots_of(Span(3, 3, 6, [7, 2, 5]), 4) == [10, 11, 20]
    assert slots_of(Span(0, 1, 9, [7, 2, 5]), 4) == [21]
    assert slots_of(Span(0, 3, 0, [4, 0, 9]), 1) == [4, 0, 9]


def permute(engine: Engine, order: list[int]) -> None:
    """Move every block: what was in block ``b`` lies in ``order[b]``, and whoever named ``b`` names that."""
    before = engine.store.device.clone()
    engine.store.device[:, :, order] = before
    pool = engine.pool
    pool.references = [count for _, count in sorted(zip(order, pool.references, strict=True))]
    pool._blank = {order[block]: None for block in pool._blank}
    pool._key_of = [key for _, key in sorted(zip(order, pool._key_of, strict=True))]
    pool._block_of = {key: order[block] for key, block in pool._block_of.items()}
    for sequence in engine.scheduler.running:
        sequence.block_table = [order[block] for block in sequence.block_table]


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_moving_blocks_and_table_together_changes_nothing(model: Model, reference: Reference, block_size: int) -> None:
    engine = WatchedEngine(model, 256 // block_size, block_size, budget=16, host=128)
    sequences = [engine.submit(str(length), draw(length, length), 10) for length in (50, 34, 7)]
    dice = random.Random(1)
    moved = 0
    while engine.is_busy:
        order = dice.sample(range(engine.pool.num_blocks), engine.pool.num_blocks)
        tables = [list(sequence.block_table) for sequence in sequences]
        permute(engine, order)
        moved += tables != [sequence.block_table for sequence in sequences]
        engine.step()
    assert moved > 10
    sequences += engine.run([(draw(50, 50), 3)])
    assert sequences[-1].device_hit
    assert_equal(reference, engine, sequences)


def test_moving_the_blocks_alone_is_noticed(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    sequence = engine.submit("0", draw(1, 30), 10)
    engine.step()
    one, other = sequence.block_table[1], sequence.block_table[-1]
    engine.store.device[:, :, [one, other]] = engine.store.device[:, :, [other, one]]
    while engine.is_busy:
        engine.step()
    assert difference(reference, engine, [sequence]) > LOGITS
    assert kv_difference(reference, engine, [sequence]) > KV


def test_every_slot_holds_what_dynamic_cache_holds_while_a_request_runs(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, budget=7)
    sequence = engine.submit("0", draw(1, 30), 10)
    answer = reference.answer(draw(1, 30), 10)
    while engine.is_busy:
        for layer in range(engine.store.shape.layers):
            keys, values = engine.kv_by_address(sequence, layer)
            assert len(keys) == sequence.computed
            if len(keys):
                assert float((keys - answer.keys[layer][: len(keys)]).abs().max()) < KV
                assert float((values - answer.values[layer][: len(keys)]).abs().max()) < KV
        engine.step()


def test_spans_share_a_gather_only_if_of_like_length() -> None:
    spans = [Span(row, 1, end - 1, []) for row, end in enumerate([100, 10, 12, 13, 126, 125, 40])]
    assert [[span.end for span in group] for group in like_lengths(spans)] == [[10, 12], [13], [40], [100, 125], [126]]
