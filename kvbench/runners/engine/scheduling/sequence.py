"""One request inside the engine: its tokens, how many of them have KV, and in which blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kvbench.runners.engine.kv.key_chain import KeyChain
from kvbench.runners.engine.kv.transfer import Ticket
from kvbench.runners.engine.model.sampling import GREEDY, Sampling
from kvbench.runs.records import Stall


@dataclass(frozen=True, slots=True)
class Loading:
    """KV on its way back from the swap space: since when, and how many tokens and blocks."""

    ticket: Ticket
    begin_s: float
    tokens: int
    blocks: int


@dataclass(slots=True)
class OpenStall:
    """A stall under way, in seconds: from the last token before a preemption to the next one, however often preempted in between."""

    after_token: int
    begin_s: float
    restoring_s: float = 0.0
    recomputing_s: float = 0.0
    first_step_s: float = 0.0

    def add_step(self, seconds: float, rebuilt_tokens: int) -> None:
        """Put a step where it belongs: one that rebuilds any KV the request had before is recomputing, also if it ends the stall."""
        if rebuilt_tokens:
            self.recomputing_s += seconds
        else:
            self.first_step_s += seconds

    def close(self, now: float) -> Stall:
        """The stall that the token delivered now ends: what was none of the other parts was waiting."""
        total, parts = now - self.begin_s, (self.restoring_s, self.recomputing_s, self.first_step_s)
        waiting = total - self.restoring_s - self.recomputing_s - self.first_step_s
        return Stall(self.after_token, *(part * 1e3 for part in (total, waiting, *parts)))


class Search(Protocol):
    """A beam search as far as its beams know it."""

    @property
    def width(self) -> int:
        """How many beams it has."""

    def leave(self, sequence: Sequence) -> None:
        """Go on without this sequence."""


class Candidate(NamedTuple):
    """A token that may come next, and its log-probability behind the beam's tokens."""

    token: int
    log_probability: float


@dataclass(slots=True)
class Beam:
    """A sequence's part in a beam search, as one of the hypotheses that it follows at once."""

    search: Search
    score: float = 0.0
    """Sum of the log-probabilities of its output tokens."""
    candidates: list[Candidate] | None = None
    """The most likely next tokens, best first, while the search waits for those of its other beams."""


@dataclass(slots=True, eq=False)
class Sequence:
    """The state of a request; everything but its KV survives a preemption.

    ``tokens`` are the prompt and the output so far. ``computed`` of them have KV in ``block_table``'s blocks: token ``j`` in logical
    block ``j // B`` at offset ``j % B`` (as in the article on paging). The last output token has no KV until it is an input itself.
    """

    request_id: str
    tokens: list[int]
    prompt_tokens: int
    max_tokens: int
    block_keys: KeyChain
    chunk_keys: KeyChain
    sampling: Sampling = GREEDY
    arrival: int = 0
    """Its place in the order of submits: the queue's, and that of the running ones."""
    followers: list[Sequence] = field(default_factory=list)
    """More samples of the same prompt; they share this one's KV as soon as the prompt is computed, and are nowhere until then."""
    cancelled: bool = False
    beam: Beam | None = None
    """Its part in a beam search, which then chooses its tokens."""

    block_table: list[int] = field(default_factory=list)
    computed: int = 0
    cached_blocks: int = 0
    """Blocks at the head of ``block_table`` that were offered to the prefix cache."""
    high_water: int = 0
    """Tokens that had KV before a preemption: to compute one of them again is to rebuild it."""
    swap_slots: list[int] = field(default_factory=list)
    """Places in the swap space that hold the KV of its first ``swapped_tokens`` tokens, a block a place."""
    swapped_tokens: int = 0
    loading: Loading | None = None

    device_hit: int | None = None
    host_hit: int | None = None
    """Prompt tokens found at the first admission; a later one, after a preemption, does not count as a hit."""

    restore_s: float = 0.0
    compute_s: float = 0.0
    token_times: list[float] = field(default_factory=list)
    preemptions: int = 0
    stalls: list[Stall] = field(default_factory=list)
    stall: OpenStall | None = None
    """Open while it was preempted since the last delivered token; the next token closes it."""

    @property
    def output_tokens(self) -> int:
        """Tokens delivered so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def finished(self) -> bool:
        """Whether every token asked for was delivered."""
        return self.output_tokens >= self.max_tokens

    @property
    def held(self) -> bool:
        """Whether all its tokens are computed and it waits for other beams of its search; its last one has KV then."""
        return self.beam is not None and self.beam.candidates is not None

    @property
    def longest(self) -> int:
        """Tokens that will have KV at the end: all but the last."""
        return self.prompt_tokens + self.max_tokens - 1

    def extend_keys(self) -> None:
        """Bring both key chains up to the tokens known."""
        self.block_keys.extend(self.tokens)
        self.chunk_keys.extend(self.tokens)

    def receive(self, token: int, now: float) -> None:
        """Deliver the next token, which ends an open stall."""
        if self.stall is not None:
            self.stalls.append(self.stall.close(now))
            self.stall = None
        self.tokens.append(token)
        self.token_times.append(now)

    def clear(self) -> None:
        """Forget the block table: nothing is computed."""
        self.block_table = []
        self.computed = 0
        self.cached_blocks = 0

    def fork(self, request_id: str, sampling: Sampling, arrival: int) -> Sequence:
        """Another sequence with the same tokens and none of the KV."""
        return Sequence(
            request_id,
            list(self.tokens),
            self.prompt_tokens,
            self.max_tokens,
            self.block_keys.copy(),
            self.chunk_keys.copy(),
            sampling,
            arrival,
            token_times=list(self.token_times),
        )

    def follow(self, parent: Sequence) -> None:
        """Take over another's tokens, and none of its KV; who holds KV gives it up first."""
        self.tokens, self.high_water = list(parent.tokens), parent.high_water
        self.block_keys, self.chunk_keys = parent.block_keys.copy(), parent.chunk_keys.copy()
