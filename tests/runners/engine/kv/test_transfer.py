"""Transfers: the bytes that come back, the order they keep, and blocks that are not reused under a copy that is still to come."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from kvbench.runners.engine.kv.kv_store import KVShape, KVStore
from kvbench.runners.engine.kv.transfer import Copy, HostCopies, make_transfer, runs
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.scheduling.scheduler import Work
from kvbench.testing.fake_transfer import DelayedTicket, DelayedTransfer
from tests.runners.engine.driver import FakeEngine, check_host_content, check_invariants, reuse_order
from tests.runners.engine.reference import DEVICE, LOGITS, Reference, WatchedEngine, assert_equal, difference, draw
from tests.runners.engine.scheduling.test_scheduler import tokens

BLOCKS = 24
TARGETS = {
    "ascending": [3, 4, 5, 6, 7, 8, 9, 10],
    "descending": [10, 9, 8, 7, 6, 5, 4, 3],
    "scattered": [9, 2, 17, 5, 20, 11, 0, 23],
    "two runs": [1, 2, 3, 4, 15, 16, 17, 18],
    "one block": [7],
}


def random_store(dtype: torch.dtype, block_size: int, head_dim: int) -> KVStore:
    """A store of noise on both sides, every byte of it."""
    store = KVStore(KVShape(3, 1, head_dim, dtype), BLOCKS, block_size, DEVICE, 4, 8)
    generator = torch.Generator().manual_seed(1)
    for side in (store.device, store.host):
        noise = torch.randint(0, 256, (side.numel() * side.itemsize,), generator=generator, dtype=torch.uint8)
        side.copy_(noise.view(dtype).view(side.shape))
    return store


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8).cpu().clone()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(as_bytes(one), as_bytes(other))


@pytest.mark.parametrize("blocks", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize(("block_size", "head_dim"), [(4, 16), (1, 3), (3, 5)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_what_was_stored_is_loaded_byte_for_byte(dtype: torch.dtype, block_size: int, head_dim: int, blocks: list[int]) -> None:
    store = random_store(dtype, block_size, head_dim)
    transfer = make_transfer(store)
    before, host = as_bytes(store.device), as_bytes(store.host)
    transfer.store([Copy(2, 0, blocks)]).wait()
    assert torch.equal(as_bytes(store.device), before)  # a store changes the host only
    assert same(store.host[2, :, :, : len(blocks)], store.device[:, :, blocks])
    others = as_bytes(store.host)
    others.view(4, -1)[2] = host.view(4, -1)[2]
    assert torch.equal(others, host)

    target = random.Random(2).sample([block for block in range(BLOCKS) if block not in blocks], len(blocks))
    host = as_bytes(store.host)
    transfer.load([Copy(2, 0, target)]).wait()
    assert torch.equal(as_bytes(store.host), host)  # a load changes the device only
    assert same(store.device[:, :, target], store.device[:, :, blocks])
    rest = [block for block in range(BLOCKS) if block not in target]
    untouched = before.view(3, 2, BLOCKS, -1)[:, :, rest]
    assert torch.equal(as_bytes(store.device).view(3, 2, BLOCKS, -1)[:, :, rest], untouched)


def test_a_copy_may_begin_inside_its_slot() -> None:
    store = random_store(torch.float32, 4, 16)
    make_transfer(store).load([Copy(1, 3, [20, 4, 5]), Copy(0, 0, [9])]).wait()
    assert same(store.device[:, :, [20, 4, 5]], store.host[1, :, :, 3:6])
    assert same(store.device[:, :, 9], store.host[0, :, :, 0])


def test_runs_are_the_longest_of_consecutive_ascending_numbers() -> None:
    assert runs([]) == []
    assert runs([5]) == [(0, 1)]
    assert runs([5, 6, 7]) == [(0, 3)]
    assert runs([5, 6, 8, 9, 3, 2, 1, 2]) == [(0, 2), (2, 4), (4, 5), (5, 6), (6, 8)]
    assert runs([4, 4]) == [(0, 1), (1, 2)]


def test_transfers_run_in_the_order_given() -> None:
    store = random_store(torch.float32, 4, 16)
    first, second = store.device[:, :, 0].clone(), store.device[:, :, 1].clone()
    transfer = make_transfer(store)
    transfer.store([Copy(0, 0, [0])])
    transfer.load([Copy(0, 0, [5])])
    transfer.store([Copy(0, 0, [1])])  # the slot is given away while it is still being read
    transfer.load([Copy(0, 0, [6])]).wait()
    assert same(store.device[:, :, 5], first)
    assert same(store.device[:, :, 6], second)


def test_a_delayed_copy_is_made_when_waited_for_and_not_before() -> None:
    store = random_store(torch.float32, 4, 16)
    transfer = DelayedTransfer(make_transfer(store))
    host = store.host.clone()
    one, two, three = (transfer.store([Copy(slot, 0, [slot])]) for slot in range(3))
    assert same(store.host, host)
    two.wait()
    assert (one.done(), two.done(), three.done()) == (True, True, False)
    assert same(store.host[0, :, :, 0], store.device[:, :, 0])
    assert same(store.host[2], host[2])
    assert (transfer.complete(), len(transfer.pending)) == (1, 0)
    assert three.done()
    three.wait()  # again: nothing


class Slow:
    """Makes the delayed transfer of an engine and keeps it at hand."""

    transfer: DelayedTransfer

    def __call__(self, store: KVStore) -> DelayedTransfer:
        self.transfer = DelayedTransfer(make_transfer(store))
        return self.transfer


def test_blocks_of_a_store_under_way_are_not_reused_though_their_sequence_was_preempted() -> None:
    slow = Slow()
    engine = FakeEngine(8, host=64, chunk=4, transfer=slow)
    sequence = engine.submit("0", tokens(0, 9), 5)
    engine.step()
    read = [block for ticket in slow.transfer.pending for copy in ticket.copies for block in copy.blocks]
    assert read == sequence.block_table[:2]
    engine.scheduler.preempt(sequence)
    assert not any(engine.pool.is_free(block) for block in read)
    assert engine.pool.free_blocks == 6
    engine.churn(6)  # whoever comes now gets other blocks
    check_invariants(engine)
    slow.transfer.complete()
    engine.drain()
    assert engine.pool.free_blocks == 8
    check_host_content(engine)


def test_the_order_of_reuse_does_not_depend_on_how_fast_copies_are() -> None:
    lines = []
    for transfer in (make_transfer, Slow()):
        engine = FakeEngine(24, host=64, chunk=8, transfer=transfer)
        line = []
        for number in range(6):
            engine.submit(str(number), tokens(100 * number, 21), 6)
            while engine.is_busy:
                engine.step()
            line.append(reuse_order(engine.pool))
        lines.append(line)
    assert lines[0] == lines[1]


def test_drain_completes_everything() -> None:
    slow = Slow()
    engine = FakeEngine(32, host=64, chunk=4, transfer=slow)
    for number in range(3):
        engine.submit(str(number), tokens(100 * number, 13), 9)
    engine.step()
    assert len(slow.transfer.pending) == 3
    engine.drain()
    assert not slow.transfer.pending
    assert not engine.pending.transfers
    assert engine.pool.used_blocks == sum(len(sequence.block_table) for sequence in engine.scheduler.running)
    check_host_content(engine)


def test_a_load_waits_for_the_store_of_the_same_slot() -> None:
    slow = Slow()
    engine = FakeEngine(8, host=64, chunk=4, transfer=slow)
    sequence = engine.submit("0", tokens(0, 9), 2)
    engine.step()
    engine.scheduler.preempt(sequence)
    engine.pool._key_of = [b""] * 8  # the device has forgotten it, the host's copy is still to be made
    engine.pool._block_of.clear()
    while engine.is_busy:
        engine.step()
    assert engine.counters.loaded_tokens == 8


def test_a_slot_may_be_given_away_while_its_store_is_under_way() -> None:
    engine = FakeEngine(32, host=8, chunk=4, transfer=Slow())  # two slots for six chunks
    engine.run([(tokens(100 * number, 9), 3) for number in range(3)], concurrency=3)
    check_host_content(engine)


PRESSURE = [(draw(1, 7), 16), (draw(2, 9), 6)]
"""In 6 blocks of 4 the newer one is preempted while its chunks are being stored, and comes back from the host."""


@pytest.mark.parametrize("budget", [5, 37])
def test_outputs_are_right_with_slow_transfers(model: Model, reference: Reference, budget: int) -> None:
    slow = Slow()
    engine = WatchedEngine(model, blocks=6, budget=budget, host=128, chunk=4, transfer=slow)
    sequences = engine.run(PRESSURE, concurrency=2)
    assert sequences[1].preemptions
    engine.forget_device()
    sequences += engine.run(PRESSURE, concurrency=2)
    assert sequences[2].host_hit
    assert not slow.transfer.pending
    assert_equal(reference, engine, sequences)


class Unpinned(WatchedEngine):
    """A broken engine: it lets go of a store's blocks at once."""

    def _write_through(self, work: Work) -> None:
        super()._write_through(work)
        for held in self.pending.transfers:
            self.pool.release(held.blocks)
        self.pending.transfers = []


class Hasty(WatchedEngine):
    """A broken engine: it takes every copy for done."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pending.collect = self.let_go  # type: ignore[method-assign]

    def let_go(self) -> None:
        for held in self.pending.transfers:
            self.pool.release(held.blocks)
        self.pending.transfers = []


def outcome(make: type[WatchedEngine], model: Model, reference: Reference) -> float:
    slow = Slow()
    engine = make(model, blocks=6, host=128, chunk=4, transfer=slow)
    engine.run(PRESSURE, concurrency=2)
    slow.transfer.complete()
    engine.forget_device()
    return difference(reference, engine, engine.run(PRESSURE, concurrency=2))


@pytest.mark.parametrize("broken", [Unpinned, Hasty])
def test_an_engine_that_does_not_hold_a_stores_blocks_is_noticed(model: Model, reference: Reference, broken: type[WatchedEngine]) -> None:
    assert outcome(WatchedEngine, model, reference) < LOGITS
    assert outcome(broken, model, reference) > LOGITS


class Forgotten(DelayedTicket):
    """A broken ticket: nobody waits for it."""

    def wait(self) -> None:
        return


class Impatient(DelayedTransfer):
    """A broken transfer: its loads come whenever they come."""

    def load(self, copies: HostCopies) -> DelayedTicket:
        super().load(copies)
        return Forgotten(self, copies, self._inner.load)


def test_an_engine_that_does_not_wait_for_its_loads_is_noticed(model: Model, reference: Reference) -> None:
    engine = WatchedEngine(model, host=128, transfer=lambda store: Impatient(make_transfer(store)))
    engine.run([(draw(5, 50), 1)])
    engine.forget_device()
    assert difference(reference, engine, engine.run([(draw(5, 50), 3)])) > LOGITS
