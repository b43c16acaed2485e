"""The engine: one step at a time, from the scheduler's plan to delivered tokens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from kvbench.errors import UsageError
from kvbench.records import Stall
from kvbench.runners.engine.attention import PagedStep, Span
from kvbench.runners.engine.block_pool import BlockPool
from kvbench.runners.engine.host_tier import HostTier
from kvbench.runners.engine.key_chain import KeyChain
from kvbench.runners.engine.kv_store import KVStore
from kvbench.runners.engine.model import Model
from kvbench.runners.engine.prefix_cache import PrefixCache
from kvbench.runners.engine.recovery import Recompute, Recovery
from kvbench.runners.engine.sampling import greedy
from kvbench.runners.engine.scheduler import Admission, Plan, Scheduler, Work
from kvbench.runners.engine.sequence import Sequence
from kvbench.runners.engine.transfer import Ticket, Transfer, make_transfer


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes of one engine, in tokens but for the blocks. ``host_tokens`` ``None``: no host tier; 0: one that holds nothing."""

    num_blocks: int
    block_size: int
    max_batch_tokens: int
    host_tokens: int | None
    chunk_tokens: int


def check_request(name: str, prompt_tokens: int, max_tokens: int, model: Model, config: EngineConfig) -> None:
    """Refuse what could never run, before anything is measured.

    Raises:
        UsageError: the prompt is empty, or the request is longer than the pool or the model allows, with the sizes.
    """
    if not prompt_tokens:
        raise UsageError(f"{name}: the prompt holds no token; raise --doc-tokens or --question-tokens")
    if prompt_tokens + max_tokens > model.max_tokens:
        raise UsageError(
            f"{name}: {prompt_tokens:,} prompt and {max_tokens:,} output tokens exceed the {model.max_tokens:,} tokens "
            f"that model {model.name} was made for; shorten the documents"
        )
    blocks = -(-(prompt_tokens + max_tokens - 1) // config.block_size)  # the last output token never becomes an input
    if blocks > config.num_blocks:
        raise UsageError(
            f"{name}: {prompt_tokens:,} prompt and {max_tokens:,} output tokens need {blocks:,} blocks of {config.block_size}, the "
            f"pool has {config.num_blocks:,} ({config.num_blocks * config.block_size:,} tokens); "
            f"--kv-tokens {blocks * config.block_size} holds it"
        )


@dataclass(slots=True)
class Counters:
    """What the engine has done since its cold start; every number only grows."""

    steps: int = 0
    computed_tokens: int = 0
    device_hit_tokens: int = 0
    host_hit_tokens: int = 0
    stored_tokens: int = 0
    loaded_tokens: int = 0
    evicted_tokens: int = 0
    host_evicted_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0


class Engine:
    """A cold engine on a loaded model. :meth:`submit`, then :meth:`step` until nothing :attr:`is_busy`."""

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        clock: Callable[[], float] = time.perf_counter,
        recovery: Recovery | None = None,
        transfer: Callable[[KVStore], Transfer] = make_transfer,
    ) -> None:
        """Allocates the device pool and the host tier, and touches both."""
        self.model = model
        self.config = config
        chunks = (config.host_tokens or 0) // config.chunk_tokens
        device = model.network.device
        self.store = KVStore(model.shape, config.num_blocks, config.block_size, device, chunks, config.chunk_tokens // config.block_size)
        self.host = None if config.host_tokens is None else HostTier(chunks, config.chunk_tokens)
        self.pool = BlockPool(config.num_blocks)
        self.cache = PrefixCache(self.pool, config.block_size, self.host)
        self.scheduler = Scheduler(self.cache, recovery or Recompute(), config.max_batch_tokens, self._reclaim)
        self.transfer = transfer(self.store)
        self.counters = Counters()
        self.events: list[dict[str, object]] = []
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._stores: list[tuple[Ticket, Sequence, list[int]]] = []

    @property
    def is_busy(self) -> bool:
        """Whether any sequence is queued or running."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, request_id: str, prompt: list[int], max_tokens: int) -> Sequence:
        """Queue a request for exactly ``max_tokens`` greedy output tokens.

        Raises:
            UsageError: as :func:`check_request`.
        """
        check_request(f"request {request_id}", len(prompt), max_tokens, self.model, self.config)
        block_keys, chunk_keys = KeyChain(self.config.block_size, self._salt), KeyChain(self.config.chunk_tokens, self._salt)
        sequence = Sequence(request_id, list(prompt), len(prompt), max_tokens, block_keys, chunk_keys)
        self.scheduler.submit(sequence)
        return sequence

    def step(self) -> list[Sequence]:
        """Compute one step; returns the sequences it finished, their blocks returned."""
        plan = self.scheduler.schedule()
        self._note_plan(plan)
        self._restore(plan.admitted)
        tokens = self._compute(plan.work)
        for work in plan.work:
            self._deliver(work, tokens.get(id(work.sequence)))
        for work in plan.work:
            self._write_through(work)
        finished = [work.sequence for work in plan.work if work.sequence.finished]
        for sequence in finished:
            self._finish(sequence)
        self._count_evictions()
        return finished

    def drain(self) -> None:
        """Wait until every store has arrived in the host tier."""
        for ticket, _, _ in self._stores:
            ticket.wait()
        self._collect_stores()

    def _restore(self, admitted: list[Admission]) -> None:
        """Bring the host parts of the hits to the device, and wait for them: their time is the request's, not the step's."""
        for admission in admitted:
            if admission.copies:
                begin = self._clock()
                self.transfer.load(admission.copies).wait()
                seconds = self._clock() - begin
                tokens = admission.hit.tokens - admission.hit.device_tokens
                self.counters.loaded_tokens += tokens
                self._note("load", admission.sequence, tokens=tokens, ms=seconds * 1e3)
                if admission.sequence.stalled:
                    admission.sequence.stall_restore_s += seconds
                elif not admission.sequence.output_tokens:
                    admission.sequence.restore_s += seconds

    def _compute(self, batch: list[Work]) -> dict[int, int]:
        """Run the model over the step's tokens; returns the next token of each sequence that has all its tokens computed, by its id."""
        if not batch:
            return {}
        begin = self._clock()
        tokens: list[int] = []
        positions: list[int] = []
        spans: list[Span] = []
        sampled: list[tuple[Sequence, int]] = []
        for work in batch:
            end = work.start + work.count
            spans.append(Span(len(tokens), work.count, work.start, work.sequence.block_table))
            tokens += work.sequence.tokens[work.start : end]
            positions += range(work.start, end)
            if end == len(work.sequence.tokens):
                sampled.append((work.sequence, len(tokens) - 1))
        logits = self.model.logits(tokens, positions, PagedStep(self.store, spans), [row for _, row in sampled])
        chosen = greedy(logits)
        if self.store.device.is_cuda:
            torch.cuda.synchronize()  # a step without a sampled token would otherwise end before its work
        seconds = self._clock() - begin
        self.counters.steps += 1
        self.counters.computed_tokens += len(tokens)
        for work in batch:
            _add_compute_time(work.sequence, seconds)
        return {id(sequence): token for (sequence, _), token in zip(sampled, chosen, strict=True)}

    def _deliver(self, work: Work, token: int | None) -> None:
        """Count the work as computed, make its full blocks findable, and hand the new token over, if there is one."""
        sequence = work.sequence
        sequence.computed += work.count
        self.cache.publish(sequence)
        if token is None:
            return
        now = self._clock()
        if sequence.stalled:
            self._end_stall(sequence, now)
        sequence.tokens.append(token)
        sequence.token_times.append(now)

    def _write_through(self, work: Work) -> None:
        """Store the chunks that the work completed; their blocks are held until the copy is done."""
        copies = self.cache.store(work.sequence, work.start)
        if copies:
            blocks = [block for copy in copies for block in copy.blocks]
            self.pool.acquire(blocks)
            self._stores.append((self.transfer.store(copies), work.sequence, blocks))
            tokens = len(copies) * self.config.chunk_tokens
            self.counters.stored_tokens += tokens
            self._note("store", work.sequence, tokens=tokens)
        self._collect_stores()

    def _collect_stores(self) -> None:
        """Let go of the blocks whose stores have arrived."""
        under_way = []
        for ticket, sequence, blocks in self._stores:
            if ticket.done():
                self.pool.release(blocks)
            else:
                under_way.append((ticket, sequence, blocks))
        self._stores = under_way

    def _reclaim(self) -> bool:
        """Wait for the oldest store under way and let go of its blocks; ``False`` if there is none."""
        if not self._stores:
            return False
        self._stores[0][0].wait()
        self._collect_stores()
        return True

    def _finish(self, sequence: Sequence) -> None:
        """Return a finished sequence's blocks; its stores first, so that the order of reuse does not depend on a copy's speed."""
        for ticket, owner, _ in self._stores:
            if owner is sequence:
                ticket.wait()
        self._collect_stores()
        self.scheduler.finish(sequence)
        self._note("finish", sequence, tokens=sequence.output_tokens)

    def _end_stall(self, sequence: Sequence, now: float) -> None:
        """Split the gap that the preemption made: what was neither restoring nor recomputing was waiting."""
        if sequence.token_times:
            total = now - sequence.token_times[-1]
            waiting = total - sequence.stall_restore_s - sequence.stall_compute_s
            parts = (part * 1e3 for part in (total, waiting, sequence.stall_restore_s, sequence.stall_compute_s))
            sequence.stalls.append(Stall(sequence.output_tokens, *parts))
        sequence.stalled = False
        sequence.stall_restore_s = sequence.stall_compute_s = 0.0

    def _note_plan(self, plan: Plan) -> None:
        """Counters and events of what the scheduler decided."""
        for sequence in plan.preempted:
            sequence.preemptions += 1
            sequence.stalled = bool(sequence.token_times)
            self.counters.preemptions += 1
            self._note("preempt", sequence)
        for admission in plan.admitted:
            sequence, hit = admission.sequence, admission.hit
            if sequence.device_hit is None:
                sequence.device_hit, sequence.host_hit = hit.device_tokens, hit.tokens - hit.device_tokens
                self.counters.device_hit_tokens += sequence.device_hit
                self.counters.host_hit_tokens += sequence.host_hit
                self._note("admit", sequence, device=sequence.device_hit, host=sequence.host_hit)
            else:
                self.counters.recomputed_tokens += len(sequence.tokens) - 1 - hit.tokens
                self._note("resume", sequence, device=hit.device_tokens, host=hit.tokens - hit.device_tokens)

    def _count_evictions(self) -> None:
        """Bring the eviction counters up to the pool's and the tier's, with one event for what this step evicted."""
        device = self.pool.evicted * self.config.block_size
        host = 0 if self.host is None else self.host.evicted * self.config.chunk_tokens
        new_device, new_host = device - self.counters.evicted_tokens, host - self.counters.host_evicted_tokens
        if new_device or new_host:
            self._note("evict", None, device=new_device, host=new_host)
        self.counters.evicted_tokens, self.counters.host_evicted_tokens = device, host

    def _note(self, event: str, sequence: Sequence | None, **fields: object) -> None:
        request = {} if sequence is None else {"request_id": sequence.request_id}
        self.events.append({"event": event, "step": self.counters.steps, "time_s": self._clock(), **request, **fields})

    def snapshot(self) -> dict[str, int]:
        """The counters as they are now."""
        return asdict(self.counters)


def _add_compute_time(sequence: Sequence, seconds: float) -> None:
    """Put a step's time where it belongs: to the stall it ends, or to the time before the first token."""
    if sequence.stalled:
        sequence.stall_compute_s += seconds
    elif not sequence.output_tokens:
        sequence.compute_s += seconds
