"""The engine: one step at a time, from the scheduler's plan to delivered tokens."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict

import torch

from kvbench.errors import Untrusted, UsageError
from kvbench.runners.engine.engine_config import EngineConfig
from kvbench.runners.engine.journal import EngineCounters, Journal
from kvbench.runners.engine.kv.block_pool import BlockPool
from kvbench.runners.engine.kv.contiguous_pool import ContiguousPool
from kvbench.runners.engine.kv.host_tier import HostTier
from kvbench.runners.engine.kv.key_chain import KeyChain
from kvbench.runners.engine.kv.kv_store import KVStore
from kvbench.runners.engine.kv.pending_transfers import PendingTransfer, PendingTransfers
from kvbench.runners.engine.kv.prefix_cache import PrefixCache
from kvbench.runners.engine.kv.transfer import Transfer, make_transfer
from kvbench.runners.engine.model.attention import PagedStep
from kvbench.runners.engine.model.model import Model
from kvbench.runners.engine.model.sampling import GREEDY, Sampling
from kvbench.runners.engine.scheduling.batch import Batch
from kvbench.runners.engine.scheduling.beam_search import BeamSearch, Searches
from kvbench.runners.engine.scheduling.recovery import Recompute
from kvbench.runners.engine.scheduling.refusals import check_beams, check_fork, check_request
from kvbench.runners.engine.scheduling.scheduler import Admission, Scheduler, Work
from kvbench.runners.engine.scheduling.sequence import Sequence
from kvbench.runners.engine.scheduling.swap import Swap


class Engine:
    """A cold engine on a loaded model. :meth:`submit`, then :meth:`step` until nothing :attr:`is_busy`."""

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        clock: Callable[[], float] = time.perf_counter,
        recovery: Recompute | None = None,
        transfer: Callable[[KVStore], Transfer] = make_transfer,
    ) -> None:
        """Allocates the device pool, the host tier and the swap space, and touches all.

        ``recovery`` ``None``: as ``config.swap_tokens`` says.

        Raises ``UsageError``: there is no policy of a name.
        """
        self.model = model
        self.config = config
        chunks, swap_blocks = (config.host_tokens or 0) // config.chunk_tokens, (config.swap_tokens or 0) // config.block_size
        device, chunk_blocks = model.network.device, config.chunk_tokens // config.block_size
        self.store = KVStore(model.shape, config.num_blocks, config.block_size, device, chunks, chunk_blocks, swap_blocks)
        self.host = None if config.host_tokens is None else HostTier(chunks, config.chunk_tokens, config.host_policy)
        self.pool = (ContiguousPool if config.contiguous else BlockPool)(config.num_blocks, config.device_policy)
        self.cache = PrefixCache(self.pool, config.block_size, self.host, config.prefix_cache)
        self.transfer = transfer(self.store)
        self.pending = PendingTransfers(self.pool)
        self.journal = Journal(clock, self.store.block_bytes)
        if recovery is None:
            space = (swap_blocks, config.block_size, self.transfer, self.pending, self.journal)
            recovery = Recompute() if config.swap_tokens is None else Swap(*space)
        self.scheduler = Scheduler(self.cache, config, recovery, self.journal, self.pending.reclaim, self.store.copy_block)
        self._clock = clock
        self._salt = secrets.token_bytes(32)
        self._arrivals = itertools.count()
        self._searches = Searches(self.scheduler, clock)

    @property
    def counters(self) -> EngineCounters:
        """What was done since the cold start."""
        return self.journal.counters

    @property
    def is_busy(self) -> bool:
        """Whether any sequence is queued or running."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, request_id: str, prompt: list[int], max_tokens: int, sampling: Sampling = GREEDY) -> Sequence:
        """Queue a request for exactly ``max_tokens`` output tokens; ``UsageError`` as :func:`check_request`."""
        check_request(f"request {request_id}", len(prompt), max_tokens, self.model, self.config)
        block_keys, chunk_keys = KeyChain(self.config.block_size, self._salt), KeyChain(self.config.chunk_tokens, self._salt)
        arrival = next(self._arrivals)
        sequence = Sequence(request_id, list(prompt), len(prompt), max_tokens, block_keys, chunk_keys, sampling, arrival)
        self.scheduler.submit(sequence)
        return sequence

    def submit_samples(self, request_id: str, prompt: list[int], max_tokens: int, samplings: list[Sampling]) -> list[Sequence]:
        """Queue one prompt to be answered several times: computed once, its blocks shared, each answer sampled in its own way.

        They are requests ``ID/0``, ``ID/1``, ...; each may end or be cancelled by itself.

        Raises ``UsageError``: as :meth:`submit`, no sampling at all, or :func:`~kvbench.runners.engine.scheduling.refusals.check_fork`.
        """
        if not samplings:
            raise UsageError(f"request {request_id}: 0 samples were asked for; ask for 1 or more")
        if len(samplings) > 1:
            check_fork(f"request {request_id}", self.config)
        first = self.submit(f"{request_id}/0", prompt, max_tokens, samplings[0])
        for number, sampling in enumerate(samplings[1:], start=1):
            first.followers.append(first.fork(f"{request_id}/{number}", sampling, next(self._arrivals)))
        return [first, *first.followers]

    def submit_beams(self, request_id: str, prompt: list[int], max_tokens: int, beams: int) -> BeamSearch:
        """Queue one prompt for a beam search, whose beams are requests as samples are; ``UsageError`` as for these, or too many beams."""
        check_beams(f"request {request_id}", beams, self.model.vocab)
        search = BeamSearch(self.submit_samples(request_id, prompt, max_tokens, [GREEDY] * beams))
        self._searches.add(search)
        return search

    def fork(self, parent: Sequence, request_id: str, sampling: Sampling = GREEDY) -> Sequence:
        """A new request that goes on from where an unfinished one is, tokens delivered so far included, and shares its KV.

        It arrives now. While the parent has no KV on the device, the child waits in the queue like any other.

        Raises ``UsageError``: :func:`~kvbench.runners.engine.scheduling.refusals.check_fork`; ``ValueError``: the parent has ended, or is a
        beam, whose tokens are its search's.
        """
        check_fork(f"request {request_id}", self.config)
        if parent.finished or parent.cancelled:
            raise ValueError(f"request {parent.request_id} has ended")
        if parent.beam is not None:
            raise ValueError(f"request {parent.request_id} is a beam")
        child = parent.fork(request_id, sampling, next(self._arrivals))
        self.scheduler.fork(parent, child)
        return child

    def cancel(self, sequence: Sequence) -> None:
        """End a request in whatever state it is; one that has ended already stays as it is. No step returns it any more.

        One that computes the prompt for others still does that, and gives no token.
        """
        if sequence.finished or sequence.cancelled:
            return
        sequence.cancelled = True
        self.counters.cancelled += 1
        self.journal.note("cancel", sequence, tokens=sequence.output_tokens)
        queued = [*self.scheduler.running, *self.scheduler.waiting]
        leader = next((other for other in queued if sequence in other.followers), sequence)
        if leader is not sequence:
            leader.followers.remove(sequence)
        if sequence.beam is not None:
            sequence.beam.search.leave(sequence)
        if leader.cancelled and not leader.followers:
            self.scheduler.remove(leader)

    def step(self) -> list[Sequence]:
        """Compute one step; returns the sequences it finished, their blocks returned."""
        finished = self._end(self._searches.choose())  # one may have been cancelled that the others waited for
        plan = self.scheduler.schedule()
        if not plan.work and not plan.preempted:
            self._await_transfer()
        self._restore(plan.admitted)
        tokens = self._compute(plan.work)
        given = [sequence for work in plan.work for sequence in self._deliver(work, tokens)]
        for work in plan.work:
            self._write_through(work)
        if self.config.sample_usage and plan.work:
            self.journal.note("usage", None, **self.scheduler.usage())
        given += self._searches.choose()
        self.pending.collect()
        finished += self._end(given)
        self._count_evictions()
        return finished

    def drain(self) -> None:
        """Wait until every copy to the host tier and to the swap space has arrived."""
        self.pending.wait()

    def _await_transfer(self) -> None:
        """With nothing to compute, wait for what the oldest sequence waits for; it is a fault of the scheduler if there is nothing."""
        loading = [sequence.loading for sequence in self.scheduler.running if sequence.loading is not None]
        if loading:
            loading[0].ticket.wait()
        elif self.is_busy and not self.pending.reclaim():
            raise RuntimeError("requests are queued, none can run, and no transfer is under way")

    def _restore(self, admitted: list[Admission]) -> None:
        """Bring the host parts of the hits to the device, and wait for them: their time is the request's, not the step's."""
        for admission in admitted:
            if admission.copies:
                begin = self._clock()
                self.transfer.load(admission.copies).wait()
                seconds = self._clock() - begin
                sequence, tokens = admission.sequence, admission.hit.tokens - admission.hit.device_tokens
                self.counters.loaded_tokens += tokens
                self.journal.note("load", sequence, tokens=tokens, ms=seconds * 1e3)
                if sequence.stall is not None:
                    sequence.stall.restoring_s += seconds
                elif not sequence.output_tokens:
                    sequence.restore_s += seconds

    def _compute(self, batch: list[Work]) -> dict[int, int]:
        """Run the model over the step's tokens; returns the next token of each sequence that has all its tokens computed, by its id.

        Raises:
            Untrusted: the model gave NaN or inf.
        """
        if not batch:
            return {}
        begin = self._clock()
        flat = Batch(batch)
        step = PagedStep(self.store, flat.spans, self.model.decoder)
        logits = self.model.logits(flat.tokens, flat.positions, step, flat.rows)
        if not torch.isfinite(logits).all():
            raise Untrusted(
                f"the logits of step {self.counters.steps} are not finite (NaN or inf), so no token is any; take other weights (--model), "
                "or --dtype float32 where a smaller type overflows"
            )
        chosen = flat.choose(logits)
        if self.store.device.is_cuda:
            torch.cuda.synchronize()  # a step without a sampled token would otherwise end before its work
        seconds = self._clock() - begin
        self.counters.steps += 1
        self.counters.computed_tokens += len(flat.tokens)
        for work in batch:
            self._add_compute_time(work, seconds)
        return chosen

    def _add_compute_time(self, work: Work, seconds: float) -> None:
        """Put a step's time where it belongs: to the stall it may end, or to the time before the first token."""
        sequence = work.sequence
        if sequence.stall is not None:
            sequence.stall.add_step(seconds, work.rebuilt)
            self.journal.note("catch up", sequence, tokens=work.rebuilt, ms=seconds * 1e3)
        elif not sequence.output_tokens:
            sequence.compute_s += seconds

    def _deliver(self, work: Work, tokens: dict[int, int]) -> list[Sequence]:
        """Count the work as computed, make its full blocks findable, and hand out the new tokens; returns who got one."""
        sequence = work.sequence
        self.counters.recomputed_tokens += work.rebuilt
        sequence.computed = work.end
        self.cache.publish(sequence)
        if id(sequence) not in tokens:
            return []
        given = [sequence, *sequence.followers]
        for child in sequence.followers:
            self.scheduler.fork(sequence, child)
        sequence.followers = []
        if sequence.cancelled:  # it went on for its followers' sake
            self.scheduler.remove(sequence)
            given.remove(sequence)
        now = self._clock()
        for member in given:
            member.receive(tokens[id(member)], now)
        return given

    def _write_through(self, work: Work) -> None:
        """Store the chunks that the work completed; their blocks are held until the copy is done."""
        copies = self.cache.store(work.sequence, work.start)
        if copies:
            blocks = [block for copy in copies for block in copy.blocks]
            self.pool.acquire(blocks)
            self.pending.hold(PendingTransfer(self.transfer.store(copies), work.sequence, blocks))
            tokens = len(copies) * self.config.chunk_tokens
            self.counters.stored_tokens += tokens
            self.journal.note("store", work.sequence, tokens=tokens)

    def _end(self, given: list[Sequence]) -> list[Sequence]:
        """Finish those of the sequences that got their last token; returns them."""
        finished = [sequence for sequence in given if sequence.finished]
        for sequence in finished:
            self._finish(sequence)
        return finished

    def _finish(self, sequence: Sequence) -> None:
        """Return a finished sequence's blocks; its stores first, so that the order of reuse does not depend on a copy's speed."""
        self.pending.wait(sequence)
        slots, used = len(sequence.block_table) * self.config.block_size, sequence.computed
        self.scheduler.remove(sequence)
        self.journal.note("finish", sequence, tokens=sequence.output_tokens, slots=slots, used=used)

    def _count_evictions(self) -> None:
        """Bring the eviction counters up to the pool's and the tier's, with one event for what this step evicted."""
        device = self.pool.evicted * self.config.block_size
        host = 0 if self.host is None else self.host.evicted * self.config.chunk_tokens
        new_device, new_host = device - self.counters.evicted_tokens, host - self.counters.host_evicted_tokens
        if new_device or new_host:
            self.journal.note("evict", None, device=new_device, host=new_host)
        self.counters.evicted_tokens, self.counters.host_evicted_tokens = device, host

    def take_events(self) -> list[dict[str, object]]:
        """The events since the last call."""
        events, self.journal.events = self.journal.events, []
        return events

    def snapshot(self) -> dict[str, int]:
        """The counters as they are now."""
        return asdict(self.counters)
