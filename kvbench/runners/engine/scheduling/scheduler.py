"""The scheduler: which tokens the next step computes, and who must be preempted when blocks run out.

Continuous batching with chunked prefill under a token budget: running sequences first, oldest first, then the queue in order of arrival.
Under shortage the victim policy says who is preempted (after the article on preemption), but never the oldest: it always gets on, so every
request becomes the oldest in turn and ends; one that could not run even alone is refused before it is submitted. A preempted request comes
back when all of its tokens fit the free blocks, before any that arrived later.

A beam that waits for others of its search (:attr:`Sequence.held`) computes nothing and keeps its blocks. If nobody else can run, one
after the other is preempted too, until those that they wait for fit; what was computed of them is kept, so each search gets on.

Preemptions of a request are bounded: between two of them another sequence has taken a block, or returned some, and each takes as many
as it has once for each time it is admitted.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kvbench.models.units import ceil_div
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.journal import Journal
from kvbench.runners.engine.kv.prefix_cache import Hit, PrefixCache
from kvbench.runners.engine.kv.transfer import Copy
from kvbench.runners.engine.scheduling.allocation import reserve_each
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.sequence import Beam, Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens ``start .. start + count - 1`` of a sequence, to be computed in this step."""

    sequence: Sequence
    start: int
    count: int

    @property
    def end(self) -> int:
        """The first token that is not computed."""
        return self.start + self.count

    @property
    def rebuilt(self) -> int:
        """Tokens of the work that had KV before a preemption."""
        return max(min(self.end, self.sequence.high_water) - self.start, 0)

    @property
    def sampled(self) -> list[Sequence]:
        """Whose next token comes from the work's last row: the sequence and its followers, if that row is its last token's."""
        return [self.sequence, *self.sequence.followers] if self._is_last and self.sequence.beam is None else []

    @property
    def searched(self) -> Beam | None:
        """The beam whose candidates come from the work's last row."""
        return self.sequence.beam if self._is_last else None

    @property
    def _is_last(self) -> bool:
        return self.end == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence that starts, or starts again, with what was found of it and the copies that bring it from the host tier."""

    sequence: Sequence
    hit: Hit
    copies: list[Copy]


@dataclass(slots=True)
class StepPlan:
    """One step: the sequences that were preempted for it, those that were admitted, and the work, in the order it was given out."""

    budget: int
    """Tokens that may still be given out."""
    preempted: list[Sequence] = field(default_factory=list)
    admitted: list[Admission] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)

    def give(self, sequence: Sequence, count: int) -> None:
        """Let the step compute a sequence's next ``count`` tokens."""
        self.work.append(Work(sequence, sequence.computed, count))
        self.budget -= count

    def take_back(self, sequence: Sequence) -> None:
        """A sequence is preempted: what it was given, another may have."""
        self.preempted.append(sequence)
        self.budget += sum(work.count for work in self.work if work.sequence is sequence)
        self.work = [work for work in self.work if work.sequence is not sequence]


class Scheduler:
    """Decides step by step. ``running`` and ``waiting`` are each in order of arrival; ``peak_running``: the most that ran in one step."""

    def __init__(
        self,
        cache: PrefixCache,
        config: EngineConfig,
        recovery: Recompute,
        journal: Journal,
        reclaim: Callable[[], bool],
        copy_block: Callable[[int, int], None],
    ) -> None:
        """``reclaim`` waits for a transfer that still holds blocks, ``False`` if none is under way; ``copy_block`` copies KV at once."""
        self.cache = cache
        self.pool = cache.pool
        self.recovery = recovery
        self.reclaim = reclaim
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.peak_running = 0
        self._config = config
        self._allocation = config.allocation if config.reserve_tokens is None else reserve_each(config.reserve_tokens)
        self._journal = journal
        self._copy_block = copy_block

    def submit(self, sequence: Sequence) -> None:
        """Put a sequence in the queue; takes no block, and frees none. It must fit the pool alone (``engine.check_request``)."""
        insort(self.waiting, sequence, key=_arrival)

    def schedule(self) -> StepPlan:
        """Plan the next step; takes the blocks it needs, and preempts where there are too few."""
        plan = StepPlan(self._config.max_batch_tokens)
        self._continue_running(plan)
        if not plan.preempted:  # whoever was just preempted must not come straight back
            self._admit_waiting(plan)
        if self.running and not plan.work and not plan.preempted and all(sequence.held for sequence in self.running):
            self._give_way(self.running[-1], plan)
        self.peak_running = max(self.peak_running, len(self.running))
        return plan

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, whatever its state, and return its blocks."""
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self.recovery.forget(sequence, self.pool)

    def needed_by_next(self) -> int:
        """Blocks that the first in the queue must have before it is admitted, its hit's included."""
        sequence = self._next_waiting()
        return 0 if sequence is None else self._blocks(self._allocation(sequence, len(sequence.tokens)))

    def usage(self) -> dict[str, int | None]:
        """Slots and requests of one step, once its tokens are computed and before the requests that it finished have gone.

        Raw counts, from which waste is computed later. Slots: ``reserved`` by the running requests, ``used`` (they hold a token's KV),
        ``unneeded`` (reserved, and never used: beyond what its request will come to), ``free``, and ``room``, the most of these that one
        request could be given. Requests: ``running``, ``waiting``; ``needed`` are the slots that the first waiting one must be given,
        ``None`` where none waits. Blocks that several requests share are not told apart.
        """
        size = self.cache.block_size
        reserved = [len(sequence.block_table) * size for sequence in self.running]
        return {
            "reserved": sum(reserved),
            "used": sum(sequence.computed for sequence in self.running),
            "unneeded": sum(max(slots - sequence.longest, 0) for slots, sequence in zip(reserved, self.running, strict=True)),
            "free": self.pool.free_blocks * size,
            "room": self.pool.room * size,
            "running": len(self.running),
            "waiting": len(self.waiting),
            "needed": self.needed_by_next() * size if self.waiting else None,
        }

    def preempt(self, sequence: Sequence) -> None:
        """Stop a running sequence and put it in the queue; what its blocks do is the recovery policy's."""
        self.running.remove(sequence)
        self._journal.preempted(sequence)
        sequence.high_water = max(sequence.high_water, sequence.computed)
        self.recovery.preempt(sequence, self.pool)
        self.submit(sequence)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a new sequence run with what is computed of another; without room for its own copy, or without KV to share, it waits."""
        self._journal.note("fork", child, parent=parent.request_id)
        blocks = parent.block_table[: self._blocks(parent.computed)]
        shares = self._config.copy_on_write
        if parent not in self.running or parent.loading is not None or not (shares or len(blocks) <= self.pool.free_blocks):
            self._journal.counters.waited_forks += 1
            self._journal.note("fork waits", child)
            self.submit(child)
            return
        if shares:
            self.pool.acquire(blocks)
        else:
            copies = self.pool.allocate(len(blocks))
            for source, target in zip(blocks, copies, strict=True):
                self._copy_block(source, target)
            self._journal.copied(child, len(blocks))
            blocks = copies
        child.block_table, child.computed, child.cached_blocks = blocks, parent.computed, parent.cached_blocks
        if child.device_hit is None:
            child.device_hit, child.host_hit = min(parent.computed, child.prompt_tokens), 0
        insort(self.running, child, key=_arrival)

    def _continue_running(self, plan: StepPlan) -> None:
        """Give running sequences their tokens, oldest first."""
        for sequence in list(self.running):
            if sequence in plan.preempted or sequence.held or not self.recovery.ready(sequence):
                continue
            count = min(len(sequence.tokens) - sequence.computed, plan.budget)
            if count == 0:
                break
            if self._make_room(sequence, sequence.computed + count, plan):
                plan.give(sequence, count)

    def _make_room(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        """Give a sequence blocks of its own for all it writes up to ``tokens``, preempting until there are enough.

        ``False`` if it had to be preempted itself.
        """
        while self._needed(sequence, tokens) > self.pool.room:
            if self.reclaim():  # a victim's blocks may be held by its transfers: waiting is cheaper than the next victim
                continue
            victim = self._config.victim(self.running[1:] or self.running)
            self._give_way(victim, plan)
            if victim is sequence:
                return False
        shared = self._shared(sequence)
        if shared is not None:
            self._unshare(sequence, shared)
        sequence.block_table += self.pool.allocate(self._needed(sequence, tokens))
        return True

    def _give_way(self, victim: Sequence, plan: StepPlan) -> None:
        plan.take_back(victim)
        self.preempt(victim)

    def _needed(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that a sequence lacks to have ``tokens`` tokens computed, that for a copy of a shared one included."""
        room = self._blocks(self._allocation(sequence, tokens)) - len(sequence.block_table)
        return max(room, 0) + (self._shared(sequence) is not None)

    def _shared(self, sequence: Sequence) -> int | None:
        """The logical block that the next token is written to, if others hold it too. Only a not-full one can be: of a fork."""
        index, offset = divmod(sequence.computed, self.cache.block_size)
        return index if offset and self.pool.references[sequence.block_table[index]] > 1 else None

    def _unshare(self, sequence: Sequence, index: int) -> None:
        """Copy on write: put a copy instead of a shared block, which stays with its other holders."""
        source = sequence.block_table[index]
        [target] = self.pool.allocate(1)
        self._copy_block(source, target)
        self.pool.release([source])
        sequence.block_table[index] = target
        self._journal.copied(sequence, 1)

    def _admit_waiting(self, plan: StepPlan) -> None:
        """Admit from the head of the queue while the budget lasts and the next one's known tokens fit the free blocks."""
        while plan.budget > 0 and (sequence := self._next_waiting()) is not None:
            hit = self.cache.look_up(sequence)
            # A hit block that lies free is taken out of the free ones too, so it cannot serve as room for the rest.
            room = self.pool.room - sum(self.pool.is_free(block) for block in hit.blocks)
            if self.needed_by_next() - len(hit.blocks) > room:
                # Where nothing runs that returns blocks, they come from transfers alone.
                if all(running.held for running in self.running) and self.reclaim():
                    continue
                break
            self.waiting.remove(sequence)
            self._start(sequence, hit, plan)
            if not self.recovery.ready(sequence):
                continue
            count = min(len(sequence.tokens) - sequence.computed, plan.budget)
            sequence.block_table += self.pool.allocate(self._needed(sequence, sequence.computed + count))
            plan.give(sequence, count)

    def _next_waiting(self) -> Sequence | None:
        """The head of the queue; a beam that waits for others has nothing to compute."""
        return next((sequence for sequence in self.waiting if not sequence.held), None)

    def _start(self, sequence: Sequence, hit: Hit, plan: StepPlan) -> None:
        """Move a sequence to the running ones with its hit's blocks, and room for what comes from the host."""
        self.pool.acquire(hit.blocks)
        sequence.block_table = hit.blocks + self.pool.allocate(self._blocks(hit.tokens) - len(hit.blocks))
        sequence.computed = hit.tokens
        sequence.cached_blocks = len(hit.blocks)
        insort(self.running, sequence, key=_arrival)
        self._journal.admitted(sequence, hit)
        plan.admitted.append(Admission(sequence, hit, self.cache.restore(sequence, hit)))
        self.recovery.restore(sequence, len(hit.blocks))

    def _blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` tokens take: ⌈tokens / B⌉, one only once the last is full."""
        return ceil_div(tokens, self.cache.block_size)


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
