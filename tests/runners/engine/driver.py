"""The engine with arithmetic instead of the model: real scheduler, cache, tier and transfers, and an exact check instead of attention.

The KV of token ``j`` is a fingerprint of tokens ``0 .. j``, so a slot that holds anything but its own prefix is noticed at once:
"attention" reads every slot a sequence says it has and compares. The next token is a function of the last fingerprint, so the right
answer to any prompt is known (:func:`expected`).
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from kvbench.runners.engine.engine import Engine
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.host_tier import HostTier
from kvbench.runners.engine.kv.kv_store import KVShape, KVStore
from kvbench.runners.engine.kv.policies.lru import LRUOrder
from kvbench.runners.engine.kv.transfer import Transfer, make_transfer
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.sampling import GREEDY, Sampling
from kvbench.runners.engine.scheduling import sequence as engine_sequence
from kvbench.runners.engine.scheduling.allocation import reserve
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.scheduler import Work
from kvbench.runners.engine.scheduling.swap import Swap

MODULUS = 2**50 - 27  # fingerprints are exact in float64
FACTOR = 6364136223846793005
JUNK = -1.0


def fingerprints(tokens: Sequence[int], after: int = 1) -> list[int]:
    """One for each token, of all tokens up to it; ``after`` is that of what came before."""
    marks = []
    for token in tokens:
        after = (after * FACTOR + token + 1) % MODULUS
        marks.append(after)
    return marks


def expected(prompt: Sequence[int], max_tokens: int, alphabet: int, sampling: Sampling = GREEDY) -> list[int]:
    """The right output."""
    mark = fingerprints(prompt)[-1]
    output = []
    for place in range(max_tokens):
        output.append(_next_token(mark, alphabet, sampling, place))
        mark = fingerprints(output[-1:], mark)[0]
    return output


def _next_token(mark: int, alphabet: int, sampling: Sampling, place: int) -> int:
    if not sampling.temperature:
        return (mark >> 13) % alphabet
    return fingerprints([mark % 2**31, place], sampling.seed % MODULUS)[-1] % alphabet


class FakeEngine(Engine):
    """Outputs are over ``0 .. alphabet - 1``; the clock ticks by one at each look."""

    def __init__(
        self,
        blocks: int,
        block_size: int = 4,
        budget: int = 2048,
        host: int | None = None,
        chunk: int = 0,
        alphabet: int = 2048,
        recovery: Recompute | None = None,
        transfer: Callable[[KVStore], Transfer] = make_transfer,
        **policies: Any,
    ) -> None:
        network = SimpleNamespace(device=torch.device("cpu"))
        model = Model("fake", network, KVShape(1, 1, 1, torch.float64), alphabet, 10**9, Path("none"), 0)
        ticks = itertools.count()
        config = EngineConfig(blocks, block_size, budget, host, chunk or block_size, **policies)
        super().__init__(model, config, lambda: float(next(ticks)), recovery, transfer)
        self.alphabet = alphabet
        self.batches: list[list[tuple[engine_sequence.Sequence, int, int]]] = []
        """Of each step, the sequences with the first token and the count computed."""
        self.contents: dict[bytes, list[int]] = {}
        """What a block or chunk with a key must hold."""
        self._marks: dict[engine_sequence.Sequence, list[int]] = {}

    def marks_of(self, sequence: engine_sequence.Sequence) -> list[int]:
        """Fingerprints of the tokens known; also notes what the blocks and chunks with a key must hold."""
        marks = self._marks.setdefault(sequence, [])
        marks += fingerprints(sequence.tokens[len(marks) :], marks[-1] if marks else 1)
        for keys, unit in ((sequence.block_keys.keys, self.config.block_size), (sequence.chunk_keys.keys, self.config.chunk_tokens)):
            for index, key in enumerate(keys):
                if key not in self.contents:
                    self.contents[key] = marks[index * unit : (index + 1) * unit]
        return marks

    def _compute(self, batch: list[Work]) -> dict[int, int]:
        self.batches.append([(work.sequence, work.start, work.count) for work in batch])
        chosen = {}
        begin = self._clock()
        for work in batch:
            end = work.start + work.count
            marks = self.marks_of(work.sequence)
            self._slots(work.sequence, work.start, end, marks[work.start : end])
            for member in work.sampled:
                chosen[id(member)] = _next_token(marks[-1], self.alphabet, member.sampling, member.output_tokens)
        for work in batch:
            end = work.start + work.count
            keys, values = self._slots(work.sequence, 0, end)
            assert keys == self.marks_of(work.sequence)[:end], f"attention of {work.sequence.request_id} reads KV of other tokens"
            assert values == [-mark for mark in keys]
        self.counters.steps += 1
        self.counters.computed_tokens += sum(work.count for work in batch)
        seconds = self._clock() - begin
        for work in batch:
            self._add_compute_time(work, seconds)
        return chosen

    def _deliver(self, work: Work, tokens: dict[int, int]) -> list[engine_sequence.Sequence]:
        given = super()._deliver(work, tokens)
        for sequence in given:
            self.marks_of(sequence)
        return given

    def _slots(
        self, sequence: engine_sequence.Sequence, start: int, end: int, marks: list[int] | None = None
    ) -> tuple[list[float], list[float]]:
        """K and V of tokens ``start .. end - 1``, written first if ``marks`` are given."""
        size = self.config.block_size
        slots = torch.tensor([sequence.block_table[j // size] * size + j % size for j in range(start, end)])
        keys, values = (part[:, 0, 0] for part in self.store.tokens(0))
        if marks is not None:
            keys[slots] = torch.tensor(marks, dtype=torch.float64)
            values[slots] = -torch.tensor(marks, dtype=torch.float64)
        return keys[slots].tolist(), values[slots].tolist()

    def run(self, prompts: Sequence[tuple[list[int], int]], concurrency: int = 1, max_steps: int = 10**6) -> list[engine_sequence.Sequence]:
        """Run the prompts in a closed loop, with every invariant checked after every step."""
        queue, in_flight = deque(prompts), 0
        sequences: list[engine_sequence.Sequence] = []
        steps = 0
        while queue or in_flight:
            while queue and in_flight < concurrency:
                prompt, max_tokens = queue.popleft()
                sequences.append(self.submit(str(len(sequences)), prompt, max_tokens))
                in_flight += 1
            in_flight -= len(self.step())
            check_invariants(self)
            steps += 1
            assert steps <= max_steps, "no progress"
        self.drain()
        check_answers(self, sequences)
        return sequences

    def churn(self, count: int) -> None:
        """Let someone else use ``count`` free blocks and give them back."""
        blocks = self.pool.allocate(count)
        self.store.device[:, :, blocks] = JUNK
        self.pool.release(blocks)


def check_answers(engine: FakeEngine, sequences: Sequence[engine_sequence.Sequence]) -> None:
    """Every token was delivered once, in order, and is right; of a cancelled request, those it got."""
    for sequence in sequences:
        prompt = sequence.tokens[: sequence.prompt_tokens]
        right = expected(prompt, sequence.max_tokens, engine.alphabet, sequence.sampling)
        assert sequence.finished or sequence.cancelled
        assert sequence.tokens[sequence.prompt_tokens :] == right[: sequence.output_tokens]
        assert len(sequence.token_times) == sequence.output_tokens
        assert all(one < other for one, other in itertools.pairwise(sequence.token_times))


def check_invariants(engine: FakeEngine) -> None:
    """What holds after every step, whatever happened."""
    pool, running, waiting = engine.pool, engine.scheduler.running, engine.scheduler.waiting
    blocks = range(pool.num_blocks)

    held = Counter(block for sequence in running for block in sequence.block_table)
    pins = Counter(block for held in engine.pending.transfers for block in held.blocks)
    assert [pool.references[block] for block in blocks] == [held[block] + pins[block] for block in blocks]
    free = [block for block in blocks if pool.is_free(block)]
    assert len(free) + sum(pool.references[block] > 0 for block in blocks) == pool.num_blocks
    assert (pool.free_blocks, pool.used_blocks) == (len(free), pool.num_blocks - len(free))
    assert set(pool._blank) == {block for block in free if pool.key_of(block) is None}
    assert len(pool._findable) == len(free) - len(pool._blank)
    assert not any(pool.references[block] for block in free)

    keyed = {block: key for block in blocks if (key := pool.key_of(block)) is not None}
    assert len(set(keyed.values())) == len(keyed) == len(pool._block_of)
    assert all(pool.find(key) == block for block, key in keyed.items())

    size = engine.config.block_size
    for sequence in running:
        room = len(sequence.block_table) * size
        assert sequence.computed <= room
        assert engine.config.allocation is reserve or room - sequence.computed < size  # waste is below one block
    assert not any(sequence.block_table for sequence in waiting)

    keys, values = (part.view(-1, size) for part in engine.store.tokens(0))
    for block, key in keyed.items():
        assert keys[block].tolist() == engine.contents[key], "a findable block holds KV of other tokens"
        assert values[block].tolist() == [-mark for mark in engine.contents[key]]

    for queue in (list(running), list(waiting)):
        assert [sequence.arrival for sequence in queue] == sorted({sequence.arrival for sequence in queue})

    if isinstance(engine.scheduler.recovery, Swap):
        space = engine.scheduler.recovery.space
        kept = Counter(place for sequence in [*running, *waiting] for place in sequence.swap_slots)
        assert space.references == [kept[place] for place in range(space.num_blocks)]  # each place has one owner, or none
        for sequence in [*running, *waiting]:
            assert len(sequence.swap_slots) * size - sequence.swapped_tokens in range(size)
            assert not sequence.swap_slots or sequence.loading is not None or sequence in waiting

    if engine.host is not None:
        slots = list(engine.host._slots.values())
        assert len(engine.host) == len(engine.host._kept) == len(set(slots)) <= engine.host.capacity
        assert all(0 <= slot < engine.host.capacity for slot in slots)


def reuse_order(pool: BlockPool) -> list[int]:
    """The free blocks of a pool under LRU, the one that is reused first in front."""
    assert isinstance(pool._findable, LRUOrder)
    return [*reversed(pool._blank), *(pool._block_of[key] for key in pool._findable._order)]


def eviction_order(tier: HostTier) -> list[bytes]:
    """The chunks of a host tier under LRU, the one that is evicted first in front."""
    assert isinstance(tier._kept, LRUOrder)
    assert set(tier._kept._order) == set(tier._slots)
    return list(tier._kept._order)


def poison(engine: Engine) -> None:
    """From now on, fill each block with NaN when it is given out, and when it becomes free and cannot be found again."""
    pool, allocate, release = engine.pool, engine.pool.allocate, engine.pool.release

    def fill(blocks: Sequence[int]) -> None:
        engine.store.device[:, :, list(blocks)] = float("nan")

    def poisoned_allocate(count: int) -> list[int]:
        blocks = allocate(count)
        fill(blocks)
        return blocks

    def poisoned_release(blocks: Sequence[int]) -> None:
        release(blocks)
        fill([block for block in blocks if pool.is_free(block) and pool.key_of(block) is None])

    fill([block for block in range(pool.num_blocks) if pool.is_free(block) and pool.key_of(block) is None])
    pool.allocate, pool.release = poisoned_allocate, poisoned_release  # type: ignore[method-assign]


def check_host_content(engine: FakeEngine) -> None:
    """Every chunk the tier can find holds the KV of its own tokens; only true of those whose store has arrived."""
    assert engine.host is not None
    assert not engine.pending.transfers
    for key, slot in engine.host._slots.items():
        if key in engine.contents:
            assert engine.store.host[slot, 0, 0].flatten().tolist() == engine.contents[key]
