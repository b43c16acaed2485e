"""What the engine did: counters that only grow, and events with step and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvbench.runners.engine.kv.prefix_cache import Hit
from kvbench.runners.engine.scheduling.sequence import Loading, OpenStall, Sequence
from kvbench.runs.events import EventName


@dataclass(slots=True)
class EngineCounters:
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
    """Tokens computed again that had KV before a preemption."""
    swapped_out_tokens: int = 0
    swapped_in_tokens: int = 0
    swapped_out_bytes: int = 0
    """Whole blocks, as they are copied."""
    swapped_in_bytes: int = 0
    swap_full: int = 0
    """Preemptions that would have swapped and found no room."""
    copied_blocks: int = 0
    """Blocks copied because they were shared (or, without copy-on-write, at the fork)."""
    waited_forks: int = 0
    """Forks that found no room for their copy, or no KV to share, and were computed again."""
    cancelled: int = 0


class Journal:
    """Counters, events, and what a sequence remembers of its own preemptions."""

    def __init__(self, clock: Callable[[], float], block_bytes: int) -> None:
        self.counters = EngineCounters()
        self.events: list[dict[str, object]] = []
        self.clock = clock
        self._block_bytes = block_bytes

    def note(self, event: EventName, sequence: Sequence | None, **fields: object) -> None:
        """An event now."""
        request = {} if sequence is None else {"request_id": sequence.request_id}
        self.events.append({"event": event, "step": self.counters.steps, "time_s": self.clock(), **request, **fields})

    def admitted(self, sequence: Sequence, hit: Hit) -> None:
        """A sequence starts with what was found of it; a second time, that is no hit."""
        beyond = hit.tokens - hit.device_tokens
        if sequence.swap_slots:
            self.note("resume", sequence, device=hit.device_tokens, host=0, swap=beyond)
        elif sequence.device_hit is not None or sequence.output_tokens:
            self.note("resume", sequence, device=hit.device_tokens, host=beyond, swap=0)
        else:
            sequence.device_hit, sequence.host_hit = hit.device_tokens, beyond
            self.counters.device_hit_tokens += hit.device_tokens
            self.counters.host_hit_tokens += beyond
            self.note("admit", sequence, device=hit.device_tokens, host=beyond)

    def preempted(self, sequence: Sequence) -> None:
        """A sequence is preempted; its stall began with the last token the user saw."""
        sequence.preemptions += 1
        if sequence.token_times and sequence.stall is None:
            sequence.stall = OpenStall(sequence.output_tokens, sequence.token_times[-1])
        self.counters.preemptions += 1
        self.note("preempt", sequence, tokens=sequence.computed)

    def swapped_out(self, sequence: Sequence, tokens: int, blocks: int, begin_s: float) -> None:
        """KV has arrived in the swap space."""
        self.counters.swapped_out_tokens += tokens
        self.counters.swapped_out_bytes += blocks * self._block_bytes
        self._note_copy("swap out", sequence, tokens, blocks, self.clock() - begin_s)

    def swapped_in(self, sequence: Sequence, loading: Loading, event: EventName = "swap in") -> None:
        """KV is back on the device, or was on its way when the ``event`` came: it is moved all the same."""
        seconds = self.clock() - loading.begin_s
        self.counters.swapped_in_tokens += loading.tokens
        self.counters.swapped_in_bytes += loading.blocks * self._block_bytes
        if sequence.stall is not None:
            sequence.stall.restoring_s += seconds
        self._note_copy(event, sequence, loading.tokens, loading.blocks, seconds)

    def copied(self, sequence: Sequence, blocks: int) -> None:
        """A sequence got its own copy of blocks that others hold."""
        self.counters.copied_blocks += blocks
        self.note("copy", sequence, blocks=blocks)

    def _note_copy(self, event: EventName, sequence: Sequence, tokens: int, blocks: int, seconds: float) -> None:
        self.note(event, sequence, tokens=tokens, bytes=blocks * self._block_bytes, ms=seconds * 1e3)
