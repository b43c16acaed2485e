"""Pool, prefix cache, host tier, scheduler and slow transfers in any order of events: the invariants hold after every one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.transfer import CpuTransfer
from kvbench.runners.engine.model.sampling import Sampling
from kvbench.runners.engine.scheduling.preemption import least_computed, newest
from kvbench.runners.engine.scheduling.sequence import Sequence
from kvbench.runners.engine.scheduling.swap import Swap
from kvbench.testing.fake_transfer import DelayedTransfer
from tests.runners.engine.driver import FakeEngine, check_answers, check_host_content, check_invariants, poison, reuse_order

ALPHABET = 2  # so that prefixes collide
PROMPTS = st.lists(st.integers(0, ALPHABET - 1), min_size=1, max_size=14)
FAST = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


class PoolMachine(RuleBasedStateMachine):
    """Requests come, are computed, are preempted and end, while copies are under way and others use the free blocks."""

    @initialize(
        block_size=st.sampled_from([1, 2, 3]),
        blocks=st.integers(7, 14),
        budget=st.integers(1, 12),
        host_chunks=st.sampled_from([None, 0, 1, 3, 8]),
        slow=st.booleans(),
        swap_tokens=st.sampled_from([None, 0, 9, 30, 200]),
        prefix_cache=st.booleans(),
        victim=st.sampled_from([newest, least_computed]),
        copy_on_write=st.booleans(),
    )
    def start(self, block_size: int, blocks: int, budget: int, host_chunks: int | None, slow: bool, **policies: Any) -> None:
        chunk = 2 * block_size
        host = None if host_chunks is None else host_chunks * chunk
        self.slow: DelayedTransfer | None = None
        transfer = self.make_slow if slow else CpuTransfer
        self.engine = FakeEngine(-(-blocks * 3 // block_size), block_size, budget, host, chunk, ALPHABET, transfer=transfer, **policies)
        poison(self.engine)
        self.sequences: list[Sequence] = []
        self.others = 0

    def make_slow(self, store: KVStore) -> DelayedTransfer:
        self.slow = DelayedTransfer(CpuTransfer(store))
        return self.slow

    @rule(prompt=PROMPTS, max_tokens=st.integers(1, 8))
    def submit(self, prompt: list[int], max_tokens: int) -> None:
        free = self.engine.pool.free_blocks
        self.sequences.append(self.engine.submit(str(len(self.sequences)), prompt, max_tokens))
        assert self.engine.pool.free_blocks == free

    @rule(prompt=PROMPTS, max_tokens=st.integers(1, 8), seeds=st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def submit_samples(self, prompt: list[int], max_tokens: int, seeds: list[int]) -> None:
        samplings = [Sampling(1.0, seed) for seed in seeds]
        self.sequences += self.engine.submit_samples(str(len(self.sequences)), prompt, max_tokens, samplings)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(self.unfinished()))
        self.sequences.append(self.engine.fork(parent, str(len(self.sequences)), parent.sampling))

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.engine.cancel(data.draw(st.sampled_from(self.unfinished())))

    def unfinished(self) -> list[Sequence]:
        return [sequence for sequence in self.sequences if not (sequence.finished or sequence.cancelled)]

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.engine.step()
            check_invariants(self.engine)

    @precondition(lambda self: self.engine.scheduler.running)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.engine.scheduler.preempt(data.draw(st.sampled_from(self.engine.scheduler.running)))

    @precondition(lambda self: self.engine.pool.free_blocks)
    @rule(data=st.data())
    def reuse(self, data: st.DataObject) -> None:
        self.engine.churn(data.draw(st.integers(1, self.engine.pool.free_blocks)))

    @precondition(lambda self: self.engine.host is not None)
    @rule()
    def others_use_the_host(self) -> None:
        assert self.engine.host is not None
        self.others += 1
        self.engine.host.put(b"other %d" % self.others)

    @precondition(lambda self: self.slow is not None and self.slow.pending)
    @rule(count=st.integers(1, 3))
    def copies_arrive(self, count: int) -> None:
        assert self.slow is not None
        self.slow.complete(count)

    @rule()
    def drain(self) -> None:
        self.engine.drain()
        assert not self.engine.pending.transfers
        if self.engine.host is not None:
            check_host_content(self.engine)

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "engine"):
            check_invariants(self.engine)

    def teardown(self) -> None:
        """Whatever happened, everything ends, is right, and leaves no block behind."""
        if not hasattr(self, "engine"):
            return
        for _ in range(100 + 60 * len(self.sequences)):
            if not self.engine.is_busy:
                break
            self.engine.step()
            check_invariants(self.engine)
        assert not self.engine.is_busy, "it hangs"
        self.drain()
        check_answers(self.engine, self.sequences)
        assert self.engine.pool.free_blocks == self.engine.pool.num_blocks
        recovery = self.engine.scheduler.recovery
        assert not isinstance(recovery, Swap) or recovery.space.free_blocks == recovery.space.num_blocks


PoolMachine.TestCase.settings = settings(FAST, max_examples=120, stateful_step_count=40)
TestPoolMachine = PoolMachine.TestCase


class PoolRules:
    """The order of reuse, written once more and as plainly as possible."""

    def __init__(self, blocks: int) -> None:
        self.line = list(range(blocks))
        self.holders = dict.fromkeys(range(blocks), 0)
        self.keys: OrderedDict[int, bytes] = OrderedDict()

    def allocate(self, count: int) -> list[int]:
        taken, self.line = self.line[:count], self.line[count:]
        for block in taken:
            self.holders[block] = 1
            self.keys.pop(block, None)
        return sorted(taken)

    def acquire(self, block: int) -> None:
        self.holders[block] += 1
        if block in self.line:
            self.line.remove(block)

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):  # the tail goes first in line
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.line = [*self.line, block] if block in self.keys else [block, *self.line]


@settings(FAST, max_examples=100)
@given(st.integers(1, 10), st.data())
def test_blocks_are_reused_not_full_first_then_least_recently_freed_tail_before_head(blocks: int, data: st.DataObject) -> None:
    pool, rules = BlockPool(blocks), PoolRules(blocks)
    tables: list[list[int]] = []
    for number in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["allocate", "release", "publish", "hit"]))
        if action == "allocate":
            count = data.draw(st.integers(0, pool.free_blocks))
            tables.append(pool.allocate(count))
            assert tables[-1] == rules.allocate(count)
        elif action == "release" and tables:
            table = tables.pop(data.draw(st.integers(0, len(tables) - 1)))
            pool.release(table)
            rules.release(table)
        elif action == "publish" and any(tables):
            block = data.draw(st.sampled_from([block for table in tables for block in table]))
            pool.publish(block, b"%d" % number)
            rules.keys.setdefault(block, b"%d" % number)
        elif action == "hit" and rules.keys:
            block = data.draw(st.sampled_from(sorted(rules.keys)))
            pool.acquire([block])
            rules.acquire(block)
            tables.append([block])
        assert reuse_order(pool) == rules.line
        assert {block: pool.key_of(block) for block in range(blocks) if pool.key_of(block)} == dict(rules.keys)
        assert pool.references == list(rules.holders.values())


@settings(FAST, max_examples=60)
@given(documents=st.integers(1, 6), full=st.integers(1, 7), spare=st.integers(0, 40))
def test_documents_re_read_in_order_hit_what_the_formula_says(documents: int, full: int, spare: int) -> None:
    usable = full + spare
    engine = FakeEngine(usable + 1, block_size=2)  # one more for the block that the last token begins
    reading = [([document] * (2 * full + 1), 1) for document in range(documents)]
    engine.run(reading)
    for _ in range(3):
        hits = [(sequence.device_hit or 0) // 2 for sequence in engine.run(reading)]
        assert hits == [max(0, min(full, usable - (documents - 1) * full))] * documents


def test_a_block_that_nobody_holds_cannot_be_released() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(2)
    pool.release(blocks)
    with pytest.raises(ValueError, match="free already"):
        pool.release(blocks)
    assert pool.free_blocks == 4
