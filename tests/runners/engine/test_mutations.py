"""A broken engine is noticed: each fault moves tokens or logits by more than the comparison of ``test_outputs`` allows.

Without this, equal outputs would prove nothing: a model that repeats two tokens for ever gives equal outputs with any KV.

Two full blocks exchanged within one sequence's past change no output of any model: attention is a sum over the past, and K carries its
position. That fault is seen in K and V by address, and in the output as soon as a hit or a write depends on the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.kv.key_chain import KeyChain
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.prefix_cache import PrefixCache
from kvbench.runners.engine.model import attention
from kvbench.runners.engine.model.attention import PagedStep, Span
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.scheduling.sequence import Sequence
from tests.runners.engine.reference import (
    CHUNK,
    DEVICE,
    KV,
    LOGITS,
    Reference,
    WatchedEngine,
    assert_equal,
    difference,
    draw,
    kv_difference,
)

CPU_ONLY = pytest.mark.skipif(DEVICE.type != "cpu", reason="CUDA has no merge")


def nothing(engine: Engine, sequence: Sequence) -> None:
    """The control."""


def zero_a_block(engine: Engine, sequence: Sequence) -> None:
    engine.store.device[:, :, sequence.block_table[3]] = 0


def point_at_a_wrong_block(engine: Engine, sequence: Sequence) -> None:
    table = sequence.block_table
    engine.pool.acquire([table[5]])
    engine.pool.release([table[3]])
    table[3] = table[5]


def swap_with_the_last(engine: Engine, sequence: Sequence) -> None:
    table = sequence.block_table
    table[2], table[-1] = table[-1], table[2]


def spoil_one_key(engine: Engine, sequence: Sequence) -> None:
    engine.store.tokens(0)[0][sequence.block_table[4] * engine.config.block_size + 1] *= 1.01


def after_a_mutation(engine: WatchedEngine, mutate: Callable[[Engine, Sequence], None]) -> list[Sequence]:
    """Mutates when the prompt is half computed (budget permitting) or some tokens are out, then runs to the end."""
    sequence = engine.submit("0", draw(1, 42), 12)
    while sequence.computed < 32:
        engine.step()
    mutate(engine, sequence)
    while engine.is_busy:
        engine.step()
    return [sequence]


FAULTS = [zero_a_block, point_at_a_wrong_block, swap_with_the_last, spoil_one_key]


@pytest.mark.parametrize("budget", [7, 2048])
@pytest.mark.parametrize("mutate", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_pool_or_the_table_is_noticed(
    model: Model, reference: Reference, mutate: Callable[[Engine, Sequence], None], budget: int
) -> None:
    control = WatchedEngine(model, budget=budget)
    assert difference(reference, control, after_a_mutation(control, nothing)) < LOGITS
    engine = WatchedEngine(model, budget=budget)
    assert difference(reference, engine, after_a_mutation(engine, mutate)) > LOGITS


@pytest.mark.parametrize("budget", [7, 2048])
def test_two_full_blocks_swapped_in_the_table_are_noticed_by_address(model: Model, reference: Reference, budget: int) -> None:
    def swap(engine: Engine, sequence: Sequence) -> None:
        table = sequence.block_table
        table[2], table[6] = table[6], table[2]

    engine = WatchedEngine(model, budget=budget)
    assert kv_difference(reference, engine, after_a_mutation(engine, swap)) > KV


def test_blocks_swapped_between_two_tables_are_noticed(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    one, other = sequences = [engine.submit(str(seed), draw(seed, 30), 8) for seed in (1, 2)]
    engine.step()
    one.block_table[2], other.block_table[2] = other.block_table[2], one.block_table[2]
    while engine.is_busy:
        engine.step()
    assert difference(reference, engine, sequences[:1]) > LOGITS
    assert difference(reference, engine, sequences[1:]) > LOGITS


def test_a_swap_before_the_blocks_are_published_is_noticed_by_who_hits_one(
    model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = PrefixCache.publish

    def swapped(cache: PrefixCache, sequence: Sequence) -> None:
        table = sequence.block_table
        if not sequence.cached_blocks:
            table[0], table[1] = table[1], table[0]
        publish(cache, sequence)

    for fault in (False, True):
        if fault:
            monkeypatch.setattr(PrefixCache, "publish", swapped)
        engine = WatchedEngine(model)
        engine.run([(draw(1, 9), 1)])
        again = engine.run([(draw(1, 9)[:4] + draw(2, 9), 3)])
        assert again[0].device_hit == 4
        assert (difference(reference, engine, again) > LOGITS) is fault


def noticed(model: Model, reference: Reference, budget: int = 37, concurrency: int = 1) -> bool:
    """Whether the ordinary comparison sees that the engine is broken."""
    engine = WatchedEngine(model, budget=budget, host=256)
    lengths = (40, 41, 43) if concurrency > 1 else (45,)
    return difference(reference, engine, engine.run([(draw(length, length), 10) for length in lengths], concurrency)) > LOGITS


@pytest.mark.parametrize("first", [1, 37])
def test_positions_off_by_one_are_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    # From token ``first`` on only: rotary positions are relative, and all of them off by one is no fault.
    logits = Model.logits

    def shifted(model: Model, tokens: list[int], positions: list[int], step: PagedStep, rows: list[int]) -> torch.Tensor:
        return logits(model, tokens, [position + (position >= first) for position in positions], step, rows)

    assert not noticed(model, reference)
    monkeypatch.setattr(Model, "logits", shifted)
    assert noticed(model, reference)


def test_kv_written_one_slot_off_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    slots_of = attention.slots_of

    def off_by_one(span: Span, block_size: int) -> list[int]:
        return [slot + 1 if slot + 1 < 64 * block_size else 0 for slot in slots_of(span, block_size)]

    monkeypatch.setattr(attention, "slots_of", off_by_one)
    assert noticed(model, reference)


def test_the_wrong_order_within_blocks_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    def reversed_offsets(span: Span, size: int) -> list[int]:
        return [span.blocks[j // size] * size + size - 1 - j % size for j in range(span.start, span.end)]

    monkeypatch.setattr(attention, "slots_of", reversed_offsets)
    assert noticed(model, reference)


def test_a_padded_bucket_without_its_mask_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    made = attention.SdpaDecode.__init__
    unmasked = 0

    def without_mask(decode: attention.SdpaDecode, store: KVStore, spans: list[Span]) -> None:
        nonlocal unmasked
        made(decode, store, spans)
        unmasked += decode._mask is not None
        decode._mask = None

    assert not noticed(model, reference, concurrency=3)
    monkeypatch.setattr(attention.SdpaDecode, "__init__", without_mask)
    assert noticed(model, reference, concurrency=3)
    assert unmasked


@CPU_ONLY
def test_an_inverted_merge_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attention.has_log_sum_exp()
    flash = attention._flash

    def inverted(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, scaling: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, lse = flash(query, key, value, causal, scaling)
        return output, -lse  # sigmoid(own − before): the weights change places

    monkeypatch.setattr(attention, "_flash", inverted)
    assert noticed(model, reference)
    assert not attention.has_log_sum_exp.__wrapped__()  # the self-test at start would not have let it in


def test_rows_that_see_the_future_are_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = attention._grouped

    def uncausal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool = False, **rest: Any) -> torch.Tensor:
        return grouped(query, key, value, **rest)

    monkeypatch.setattr(attention, "_grouped", uncausal)
    assert noticed(model, reference)


def test_another_softmax_scale_is_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    call = PagedStep.__call__

    def scaled(step: PagedStep, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
        return call(step, layer, query, key, value, scaling * 1.001)

    monkeypatch.setattr(PagedStep, "__call__", scaled)
    assert noticed(model, reference)


@pytest.mark.parametrize("side", [0, 1], ids=["keys", "values"])
def test_a_corrupted_host_chunk_is_noticed_by_who_hits_it(model: Model, reference: Reference, side: int) -> None:
    for spoil in (False, True):
        engine = WatchedEngine(model, host=128)
        prompt = draw(5, 50)
        engine.run([(prompt, 1)])
        engine.forget_device()
        if spoil:
            engine.store.host[1, 0, side, 2] *= 1.01
        again = engine.run([(prompt, 4)])
        assert again[0].host_hit == 48
        assert (difference(reference, engine, again) > LOGITS) is spoil


def test_two_host_chunks_exchanged_are_noticed(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, host=128)
    prompt = draw(5, 50)
    engine.run([(prompt, 1)])
    engine.forget_device()
    engine.store.host[[0, 1]] = engine.store.host[[1, 0]]
    again = engine.run([(prompt[:20] + draw(6, 9), 4)])
    assert again[0].host_hit == CHUNK
    assert difference(reference, engine, again) > LOGITS


def test_keys_without_their_parent_are_noticed(model: Model, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(chain: KeyChain, tokens: list[int]) -> None:
        size = chain._unit
        chain.keys = [repr(tokens[start : start + size]).encode() for start in range(0, len(tokens) // size * size, size)]

    monkeypatch.setattr(KeyChain, "extend", forgetful)
    engine = WatchedEngine(model)
    unit = draw(1, 4)
    first = engine.run([(unit + draw(2, 8), 1)])
    second = engine.run([(draw(3, 4) + draw(2, 8) + draw(4, 3), 3), (unit + unit + unit + [1], 3)])
    assert difference(reference, engine, first) < LOGITS
    assert difference(reference, engine, second) > LOGITS


def test_the_comparison_passes_what_is_right(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model)
    assert_equal(reference, engine, after_a_mutation(engine, nothing))
