"""The scheduler: which tokens the next step computes, and who must give way when blocks run out.

Continuous batching with chunked prefill under a token budget: running sequences first, oldest first, then the queue in order. Under
shortage the newest running sequence is preempted (source 000), so the oldest always gets on and nothing hangs: a request that could
not run even alone is refused before it is submitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kvbench.runners.engine.block_pool import BlockPool
from kvbench.runners.engine.prefix_cache import Hit, PrefixCache
from kvbench.runners.engine.recovery import Recovery
from kvbench.runners.engine.sequence import Sequence
from kvbench.runners.engine.transfer import Copy


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens ``start .. start + count - 1`` of a sequence, to be computed in this step."""

    sequence: Sequence
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence that starts, or starts again, with what was found of it and the copies that bring it from the host."""

    sequence: Sequence
    hit: Hit
    copies: list[Copy]


@dataclass(slots=True)
class Plan:
    """One step: the sequences that gave way for it, those that were admitted, and the work, in the order it was given out."""

    preempted: list[Sequence] = field(default_factory=list)
    admitted: list[Admission] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)


class Scheduler:
    """Decides step by step. ``running`` is in order of arrival, and every sequence in it came before every one in ``waiting``."""

    def __init__(self, cache: PrefixCache, recovery: Recovery, max_batch_tokens: int, reclaim: Callable[[], bool] = lambda: False) -> None:
        """``reclaim`` waits for a transfer that still holds blocks; ``False`` if none is under way."""
        self.cache = cache
        self.pool: BlockPool = cache.pool
        self.recovery = recovery
        self.max_batch_tokens = max_batch_tokens
        self.reclaim = reclaim
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()

    def submit(self, sequence: Sequence) -> None:
        """Put a sequence in the queue; takes no block, and frees none. It must fit the pool alone (``engine.check_request``)."""
        self.waiting.append(sequence)

    def schedule(self) -> Plan:
        """Plan the next step; takes the blocks it needs, and preempts where there are too few."""
        plan = Plan()
        budget = self._continue_running(plan, self.max_batch_tokens)
        if not plan.preempted:  # whoever just gave way must not come straight back
            self._admit_waiting(plan, budget)
        return plan

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out and return its blocks."""
        self.running.remove(sequence)
        self.pool.release(sequence.block_table)
        sequence.block_table = []

    def preempt(self, sequence: Sequence) -> None:
        """Stop a running sequence and put it at the head of the queue; what its blocks do is the recovery policy's."""
        self.running.remove(sequence)
        self.recovery.preempt(sequence, self.pool)
        self.waiting.appendleft(sequence)

    def _continue_running(self, plan: Plan, budget: int) -> int:
        """Give running sequences their tokens, oldest first; returns what is left of the budget."""
        for sequence in list(self.running):
            if sequence in plan.preempted:  # so are all that came after it
                break
            count = min(len(sequence.tokens) - sequence.computed, budget)
            if count == 0 or not self._make_room(sequence, sequence.computed + count, plan):
                break
            plan.work.append(Work(sequence, sequence.computed, count))
            budget -= count
        return budget

    def _make_room(self, sequence: Sequence, tokens: int, plan: Plan) -> bool:
        """Extend the block table to ``tokens``, preempting the newest until it fits; ``False`` if that was the sequence itself."""
        missing = self._blocks(tokens) - len(sequence.block_table)
        while missing > self.pool.free_blocks:
            if self.reclaim():  # a victim's blocks may be held by its stores: waiting is cheaper than the next victim
                continue
            victim = self.running[-1]
            self.preempt(victim)
            plan.preempted.append(victim)
            if victim is sequence:
                return False
        sequence.block_table += self.pool.allocate(max(missing, 0))
        return True

    def _admit_waiting(self, plan: Plan, budget: int) -> None:
        """Admit from the head of the queue while the budget lasts and the next one's known tokens fit the free blocks."""
        while self.waiting and budget > 0:
            sequence = self.waiting[0]
            hit = self.cache.look_up(sequence)
            # A hit block that lies free is taken out of the free ones too, so it cannot serve as room for the rest.
            free = self.pool.free_blocks - sum(self.pool.is_free(block) for block in hit.blocks)
            if self._blocks(len(sequence.tokens)) - len(hit.blocks) > free:
                if not self.running and self.reclaim():  # otherwise nothing would ever return those blocks
                    continue
                break
            self.waiting.popleft()
            self._start(sequence, hit, plan)
            count = min(len(sequence.tokens) - sequence.computed, budget)
            sequence.block_table += self.pool.allocate(self._blocks(sequence.computed + count) - len(sequence.block_table))
            plan.work.append(Work(sequence, sequence.computed, count))
            budget -= count

    def _start(self, sequence: Sequence, hit: Hit, plan: Plan) -> None:
        """Move a sequence to the running ones with its hit's blocks, and room for what comes from the host."""
        self.pool.acquire(hit.blocks)
        sequence.block_table = hit.blocks + self.pool.allocate(self._blocks(hit.tokens) - len(hit.blocks))
        sequence.computed = hit.tokens
        sequence.published = len(hit.blocks)
        self.running.append(sequence)
        plan.admitted.append(Admission(sequence, hit, self.cache.restore(sequence, hit)))

    def _blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` tokens take: ⌈tokens / B⌉, one only once the last is full."""
        return -(-tokens // self.cache.block_size)
